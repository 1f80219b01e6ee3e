//! SQLite under the conformance suite. A crash is a copy of the files at that moment, with a torn write at the end of the
//! log, opened as a new database: exactly what a machine finds after `kill -9`.

use std::{fs, ops::Range, path::PathBuf};

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp, env::Env};
use attache_store::{Result, Store, conformance::EngineUnderTest, sql::SqlStore};
use tempfile::TempDir;

use crate::conformance::conform;

/// A database that can be copied, torn and thrown away.
#[derive(Debug)]
pub(crate) struct Database {
    folder: TempDir,
    /// Counts the files, so that every opening has a file of its own.
    opened: u64,
    store: SqlStore,
}

// === impl Database ===

impl Database {
    pub(crate) fn new() -> Self {
        // In memory where the machine has it: thousands of databases are opened, and disks are tested elsewhere.
        let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        // Migrations run once; every sequence starts from a copy.
        drop(SqlStore::open(&folder.path().join("empty.db")).unwrap());
        let store = SqlStore::open(&folder.path().join("0.db")).unwrap();
        Self { folder, opened: 0, store }
    }

    fn file(&self, number: u64, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("{number}.db{suffix}"))
    }

    fn open_next(&mut self) {
        self.opened += 1;
        self.store = SqlStore::open(&self.file(self.opened, "")).unwrap();
        for suffix in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.file(self.opened - 1, suffix));
        }
    }
}

#[async_trait]
impl EngineUnderTest for Database {
    fn store(&self) -> &dyn Store {
        &self.store
    }

    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.store.create_tenant(id, name, at).await
    }

    async fn crash_and_reopen(&mut self) {
        let (now, next) = (self.opened, self.opened + 1);
        fs::copy(self.file(now, ""), self.file(next, "")).unwrap();
        if let Ok(mut wal) = fs::read(self.file(now, "-wal")) {
            wal.extend_from_slice(&[0xA5; 3_000]);
            fs::write(self.file(next, "-wal"), wal).unwrap();
        }
        self.open_next();
    }

    async fn reset(&mut self) {
        fs::copy(self.folder.path().join("empty.db"), self.file(self.opened + 1, "")).unwrap();
        self.open_next();
    }
}

// Two halves, so that two cores share them.

#[tokio::test]
async fn sqlite_agrees_with_the_model_first_half() {
    conform("sqlite_agrees_with_the_model_first_half", half(0), &mut Database::new()).await;
}

#[tokio::test]
async fn sqlite_agrees_with_the_model_second_half() {
    conform("sqlite_agrees_with_the_model_second_half", half(5_000), &mut Database::new()).await;
}

/// A thousand sequences, five thousand with `ATTACHE_LONG=1`.
#[allow(clippy::disallowed_methods, reason = "`./test --long` asks for more through the environment")]
fn half(start: u64) -> Range<u64> {
    start..start + if std::env::var_os("ATTACHE_LONG").is_some() { 5_000 } else { 1_000 }
}

/// People copy one file, and miss the log beside it.
#[tokio::test]
async fn a_closed_store_is_one_whole_file() {
    let folder = TempDir::new().unwrap();
    let (path, copy) = (folder.path().join("hub.db"), folder.path().join("copy.db"));
    let env = Env::seeded(1);
    let store = SqlStore::open(&path).unwrap();
    let tenant = store.ensure_tenant(env.tenant_id(), "default", env.now()).await.unwrap();
    store.close().await;
    fs::copy(&path, &copy).unwrap();
    let copied = SqlStore::open(&copy).unwrap();
    assert_eq!(copied.ensure_tenant(env.tenant_id(), "default", env.now()).await.unwrap(), tenant);
    copied.close().await;
}
