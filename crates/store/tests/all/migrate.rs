//! `attache migrate` under the conformance suite: at every crash, the database moves from SQLite to PostgreSQL or back, and the model
//! mustn't notice.

use std::path::PathBuf;

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp};
use attache_store::{
    Error, Result, StorageFault, Store,
    conformance::{EngineUnderTest, postgres_server::TestPostgresServer},
    sql::{DatabaseAddress, DatabaseSharing, MigrationProgress, MigrationSummary, SqlStore},
};

use crate::{conformance::conform, postgres::address};

/// A store that moves to the other database whenever it is opened again.
struct MovingStore {
    server: TestPostgresServer,
    folder: tempfile::TempDir,
    store: SqlStore,
    place: DatabaseAddress,
    /// How many databases there were.
    count: usize,
}

// === impl MovingStore ===

impl MovingStore {
    /// `None` where PostgreSQL isn't installed.
    async fn start() -> Option<Self> {
        let server = TestPostgresServer::start()?;
        let folder = tempfile::tempdir().unwrap();
        let place = DatabaseAddress::File(folder.path().join("0.db"));
        Some(Self { store: open(place.clone()).await.unwrap(), server, folder, place, count: 1 })
    }

    fn new_file(&mut self) -> PathBuf {
        self.count += 1;
        self.folder.path().join(format!("{}.db", self.count))
    }

    fn new_database(&mut self) -> DatabaseAddress {
        self.count += 1;
        address(&self.server.create_database(&format!("moved{}", self.count)))
    }

    async fn restart_at(&mut self, place: DatabaseAddress) {
        self.store = open(place.clone()).await.unwrap();
        self.place = place;
    }
}

async fn open(place: DatabaseAddress) -> Result<SqlStore> {
    tokio::task::spawn_blocking(move || SqlStore::connect(place, DatabaseSharing::Alone)).await.unwrap()
}

async fn migrate(from: DatabaseAddress, to: DatabaseAddress) -> Result<(MigrationSummary, Vec<MigrationProgress>)> {
    let copying = move || {
        let mut seen = Vec::new();
        SqlStore::migrate(from, to, &mut |progress| seen.push(progress)).map(|summary| (summary, seen))
    };
    tokio::task::spawn_blocking(copying).await.unwrap()
}

#[async_trait]
impl EngineUnderTest for MovingStore {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.store.create_tenant(id, name, at).await
    }

    async fn crash_and_reopen(&mut self) {
        self.store.close().await;
        let next = match self.place {
            DatabaseAddress::File(_) => self.new_database(),
            DatabaseAddress::Server { .. } => DatabaseAddress::File(self.new_file()),
        };
        let (summary, seen) = migrate(self.place.clone(), next.clone()).await.unwrap();
        assert_eq!(seen.last().map(|last| (last.copied, last.total)), Some((summary.rows, summary.rows)));
        self.restart_at(next).await;
    }

    async fn reset(&mut self) {
        self.store.close().await;
        let file = self.new_file();
        self.restart_at(DatabaseAddress::File(file)).await;
    }
}

#[tokio::test]
async fn a_database_that_moves_agrees_with_the_model() {
    let Some(mut moving) = MovingStore::start().await else { return };
    conform("a_database_that_moves_agrees_with_the_model", 9_000..9_006, &mut moving).await;
}

#[tokio::test]
async fn what_is_not_empty_or_in_use_is_refused_and_left_alone() {
    let Some(mut moving) = MovingStore::start().await else { return };
    let refused = |from: &DatabaseAddress, to: &DatabaseAddress| {
        let migrating = migrate(from.clone(), to.clone());
        async move { migrating.await.unwrap_err().to_string() }
    };
    let (file, server) = (moving.place.clone(), moving.new_database());
    moving
        .store
        .ensure_tenant(TenantId::from_uuid(uuid::Uuid::from_u128(1)), "one", Timestamp::from_millis(0))
        .await
        .unwrap();

    assert!(refused(&file, &server).await.contains("belongs to a hub that is running"));
    moving.store.close().await;
    let missing = DatabaseAddress::File(moving.new_file());
    assert!(refused(&missing, &server).await.contains("there is no database at"));
    assert!(refused(&server, &missing).await.contains("the database on the server is empty"));
    let DatabaseAddress::File(path) = &missing else { unreachable!() };
    assert!(!path.exists(), "nothing is left of a copy that failed");

    let (copied, _) = migrate(file.clone(), server.clone()).await.unwrap();
    assert_eq!(refused(&file, &server).await, "the database on the server isn't empty");
    assert!(refused(&server, &file).await.contains("exists already"));

    // What was refused is still complete.
    let hub = open(server.clone()).await.unwrap();
    assert_eq!(
        migrate(server.clone(), missing.clone()).await.unwrap_err(),
        Error::Unwritable(StorageFault::ServedElsewhere),
        "a hub on the server stops it, too"
    );
    hub.close().await;
    drop(hub);
    assert_eq!(migrate(server.clone(), missing.clone()).await.unwrap().0, copied);

    // What was moved is left alone from then on, by everybody.
    let moved = format!("the database was moved to {}", path.display());
    let another = DatabaseAddress::File(moving.new_file());
    assert_eq!(refused(&server, &another).await, moved);
    assert_eq!(open(server).await.map(drop).unwrap_err().to_string(), moved);
    open(missing).await.unwrap().close().await;
}
