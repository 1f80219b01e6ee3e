//! PostgreSQL under the conformance suite, and what several stores on one database must agree on.

use std::{ops::Range, sync::Arc};

use async_trait::async_trait;
use attache_protocol::{Secret, TenantId, Timestamp};
use attache_store::{
    Result, Store,
    conformance::{EngineUnderTest, postgres_server::TestPostgresServer, run_sequence},
    memory::MemoryStore,
    sql::{DatabaseAddress, DatabaseSharing, SqlStore},
};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};

use crate::conformance::{STEPS, conform};

/// How many sequences may pass before a mistake is noticed.
const MAX_SEQUENCES: u64 = 20;

/// Stores on one database, which take turns: every step is another one's.
pub(crate) struct Nodes {
    server: TestPostgresServer,
    stores: Vec<SqlStore>,
    turn: std::sync::atomic::AtomicUsize,
}

/// Opens a store. It has threads of its own that mustn't be started by those of the runtime.
pub(crate) async fn connect(url: &str) -> Result<SqlStore> {
    let address = address(url);
    tokio::task::spawn_blocking(move || SqlStore::connect(address, DatabaseSharing::WithOthers)).await.unwrap()
}

pub(crate) fn address(url: &str) -> DatabaseAddress {
    DatabaseAddress::Server { url: Secret::new(url.to_owned()), tls: no_trust() }
}

/// The servers of these tests don't speak TLS.
fn no_trust() -> Arc<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

// === impl Nodes ===

impl Nodes {
    /// `None` where PostgreSQL isn't installed.
    pub(crate) async fn start(count: usize) -> Option<Self> {
        let server = TestPostgresServer::start()?;
        let url = server.create_database("hub");
        let mut stores = Vec::new();
        for _ in 0..count {
            stores.push(connect(&url).await.unwrap());
        }
        Some(Self { server, stores, turn: 0.into() })
    }
}

#[async_trait]
impl EngineUnderTest for Nodes {
    fn store(&self) -> &dyn Store {
        let turn = self.turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        &self.stores[turn % self.stores.len()]
    }

    async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.stores[0].create_tenant(id, name, at).await
    }

    async fn crash_and_reopen(&mut self) {
        let next = connect(&self.server.url("hub")).await.unwrap();
        let turn = self.turn.load(std::sync::atomic::Ordering::Relaxed);
        let count = self.stores.len();
        self.stores[turn % count] = next;
    }

    /// Empties every table. The stores notice that somebody else wrote.
    async fn reset(&mut self) {
        self.server.psql(
            "hub",
            "do $$ declare name text; begin
                for name in select tablename from pg_tables where schemaname = 'public'
                    and tablename not in ('schema_version', 'writer_turn')
                loop execute format('delete from %I', name); end loop;
                for name in select sequencename from pg_sequences where schemaname = 'public'
                    and sequencename not in ('writers', 'writer_changes_no_seq')
                loop execute format('alter sequence %I restart', name); end loop;
             end $$; update writer_turn set holder = 0",
        );
    }

    /// Of one store now and then, so that the others' steps are few or many when it has its next turn.
    async fn stale_memory(&mut self) -> Option<String> {
        let turn = self.turn.load(std::sync::atomic::Ordering::Relaxed);
        self.stores.get(turn % 7)?.stale_memory().await.unwrap_or_else(|error| Some(error.to_string()))
    }
}

#[tokio::test]
async fn postgres_agrees_with_the_model() {
    let Some(mut nodes) = Nodes::start(1).await else { return };
    conform("postgres_agrees_with_the_model", seeds(0), &mut nodes).await;
}

#[tokio::test]
async fn three_stores_on_one_database_agree_with_the_model() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    conform("three_stores_on_one_database_agree_with_the_model", seeds(5_000), &mut nodes).await;
}

/// What writers tell each other, without what these sequences never or hardly ever reach: enough runs to move the floor,
/// usage that is reported late, and the removal of a run whose key is still remembered.
const LISTED: [&str; 9] =
    ["heads", "runs", "ended", "written", "quotas", "subscribed", "clock", "channels", "accounts"];

/// The suite notices when a writer doesn't list what it changed: a trigger leaves it out.
#[tokio::test]
async fn whatever_a_writer_does_not_tell_the_others_is_noticed() {
    let Some(mut nodes) = Nodes::start(3).await else { return };
    let mut unnoticed = Vec::new();
    for left_out in LISTED {
        nodes.server.psql(
            "hub",
            &format!(
                "create or replace function leave_out() returns trigger language plpgsql as
                 $$ begin new.changes := (new.changes::jsonb - '{left_out}')::text; return new; end $$;
                 create or replace trigger leaves_out before insert on writer_changes
                 for each row execute function leave_out()"
            ),
        );
        let mut is_noticed = false;
        for seed in 0..MAX_SEQUENCES {
            nodes.reset().await;
            is_noticed = run_sequence(seed, STEPS, &MemoryStore::new(), &mut nodes).await.is_err();
            if is_noticed {
                break;
            }
        }
        if !is_noticed {
            unnoticed.push(left_out);
        }
    }
    assert!(unnoticed.is_empty(), "nobody noticed that these were left out: {unnoticed:?}");
}

/// Forty sequences, five thousand with `ATTACHE_LONG=1`: each statement is a message to a server.
#[allow(clippy::disallowed_methods, reason = "`./test --long` asks for more through the environment")]
fn seeds(start: u64) -> Range<u64> {
    start..start + if std::env::var_os("ATTACHE_LONG").is_some() { 5_000 } else { 40 }
}
