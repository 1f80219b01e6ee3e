//! The engine for both databases: SQLite in a file of its own, or a PostgreSQL server that several nodes share. One writer
//! thread with group commit, and a few connections that only read.
//!
//! An answer is only given after its commit was flushed to disk.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use attache_protocol::{
    AgentId, ArtifactId, ConversationId, InputId, Json, KeyId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    WorkspaceId,
    rules::run::{RunStatus, WorkerRef},
    secret::SecretHash,
    wire::run::SandboxLimit,
};

mod agents;
mod backup;
mod cache;
mod channels;
mod connection;
mod conversations;
mod damage;
mod database;
mod delegations;
mod deliveries;
mod disk_health;
mod frames;
mod grants;
mod journal;
mod keys;
mod lists;
mod log_keys;
mod lookup_cache;
mod migrate;
mod nodes;
mod notice_listener;
mod notices;
mod notifications;
mod open;
mod open_postgres;
mod owner;
mod packed_state;
mod passkeys;
mod peer_tasks;
mod peers;
mod permissions;
mod pushes;
mod quotas;
mod readers;
mod removal;
mod rows;
mod runs;
mod runtimes;
mod saved_views;
mod search;
mod shared_values;
mod statements;
mod streams;
mod sweep;
mod tasks;
#[cfg(test)]
mod tests;
mod trait_impls;
mod usage_ledger;
mod users;
mod worker_requests;
mod worktrees;
mod writer;

use connection::{Connection, OptionalExtension as _};
use database::{Database, DatabaseFacts};
pub use database::{DatabaseAddress, DatabaseSharing};
use disk_health::DiskHealth;
pub use migrate::{MigrationProgress, MigrationSummary};
use notice_listener::NoticeListener;
use readers::Readers;
use rows::IdBytes;
use writer::{UndoMode, WakeListenerCell, WriteTransaction, Writer};

use crate::{
    Durability, Error, Result, StorageFault, Store, WakeListener, WriteContext,
    metrics::StoreMetrics,
    record::{
        AccountPatch, AccountRecord, AgentRef, ArtifactRecord, ClaimedRunRecord, Class, ConversationRecord,
        HeartbeatResult, KeyKind, KeyRecord, LeaseTimes, ListPage, LiveCounts, LogPage, MessageRecord, NewAccount,
        NewArtifact, NewConversation, NewKey, NewMessage, NewPairingCode, NewPairingRequest, NewProgress, NewRun,
        NewRuntime, OutlineScope, OutputMatches, Pagination, Pairing, PairingDecision, PairingProof, PairingRequest,
        RetentionLimits, RetentionResult, RunCreation, RunEvents, RunFilter, RunOutline, RunRecord, RunResult,
        RuntimeRecord, StoredCredential, SweepResult, TokenChange,
        channel::ChannelConnection,
        retention::ITEMS_PER_TRANSACTION,
        task::{TaskFilter, TaskPage},
    },
};

/// How many runs lose their chunks per transaction, so that retention never blocks the writer for long.
const RUNS_PER_REMOVAL: usize = 500;

/// How many steps a sweep goes with the search index, at least and at most.
const MIN_INDEX_STEPS: usize = 4;
const MAX_INDEX_STEPS: usize = 64;

/// A database and the threads that work on it.
pub struct SqlStore {
    about: DatabaseFacts,
    /// Taken by `close`.
    threads: RwLock<Option<Arc<StoreThreads>>>,
    joins: Mutex<Vec<std::thread::JoinHandle<()>>>,
    listener: Arc<WakeListenerCell>,
    measures: Arc<StoreMetrics>,
    condition: DiskHealth,
}

#[derive(Debug)]
struct StoreThreads {
    writer: Writer,
    readers: Readers,
    _listener: Option<NoticeListener>,
}

// === impl SqlStore ===

impl SqlStore {
    /// Opens or creates the database and migrates its schema. Blocks for some seconds while another store, which was
    /// dropped or whose program is exiting, still writes there.
    pub fn open(path: &Path) -> Result<Self> {
        Self::start(&Database::File(path.to_owned()))
    }

    /// Connects to a database on a PostgreSQL server, and makes or migrates its schema. Blocks, and must not be called on
    /// a thread that drives an async runtime. [`StorageFault::ServedElsewhere`] if somebody is [`DatabaseSharing::Alone`] there.
    pub fn connect(address: DatabaseAddress, sharing: DatabaseSharing) -> Result<Self> {
        Self::start(&address.shared(sharing)?)
    }

    fn start(database: &Database) -> Result<Self> {
        let listener = Arc::new(WakeListenerCell::new());
        let measures = Arc::new(StoreMetrics::default());
        let condition = DiskHealth::default();
        let shared = writer::WriterShared {
            listener: Arc::clone(&listener),
            measures: Arc::clone(&measures),
            condition: condition.clone(),
        };
        let (writer, writer_thread) = Writer::start(database.clone(), shared)?;
        let about = database.facts(&database.reader()?)?;
        let (readers, mut joins) = Readers::start(database, &measures)?;
        joins.push(writer_thread);
        let mut notices = None;
        if let Database::Postgres(server) = database
            && server.sharing == DatabaseSharing::WithOthers
        {
            let (listening, thread) = NoticeListener::start((**server).clone(), Arc::clone(&listener))?;
            joins.push(thread);
            notices = Some(listening);
        }
        Ok(Self {
            about,
            threads: RwLock::new(Some(Arc::new(StoreThreads { writer, readers, _listener: notices }))),
            joins: Mutex::new(joins),
            listener,
            measures,
            condition,
        })
    }

    /// The schema of a new database, as checked in next to the migrations.
    pub fn schema(path: &Path) -> Result<String> {
        Ok(open::schema(&open::writer(path)?)?)
    }

    /// Copies a database, even one that a hub is writing to, into a new file. Blocks, like [`Self::connect`].
    pub fn backup(from: DatabaseAddress, to: &Path) -> Result<()> {
        match from.alone()? {
            Database::File(path) => backup::copy(&path, to),
            server @ Database::Postgres(_) => migrate::export(&server, to),
        }
    }

    /// Copies everything from a file to an empty database on a server, or back to a new file, and verifies the copy. No hub may serve
    /// either of them meanwhile. Blocks, like [`Self::connect`].
    pub fn migrate(
        from: DatabaseAddress,
        to: DatabaseAddress,
        progress: &mut dyn FnMut(MigrationProgress),
    ) -> Result<MigrationSummary> {
        migrate::migrate(&from.alone()?, &to.alone()?, progress)
    }

    fn threads(&self) -> Result<Arc<StoreThreads>> {
        let threads = self.threads.read().unwrap_or_else(PoisonError::into_inner);
        threads.clone().ok_or_else(|| Error::Internal("the store is closed".to_owned()))
    }

    /// A write that changes nothing if it returns an error.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.writer.write(UndoMode::Savepoint, move |transaction| job(transaction).map(Ok)).await
    }

    /// A write whose error may come with changes to keep.
    async fn settle<T: Send + 'static>(
        &self,
        undo: UndoMode,
        job: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.writer.write(undo, job).await
    }

    /// Brings the search index closer to the newest run: a few steps while others write, many when nobody does.
    async fn index_runs(&self) -> Result<()> {
        for step in 0..MAX_INDEX_STEPS {
            let threads = self.threads()?;
            if step >= MIN_INDEX_STEPS && !threads.writer.is_idle() {
                break;
            }
            let upto = self.read(search::next_unindexed).await?;
            if upto.is_none() || !self.write(|transaction| transaction.index_runs()).await? {
                break;
            }
        }
        Ok(())
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.readers.read(query).await
    }

    /// Whether no hub has ever used it.
    pub async fn is_empty(&self) -> Result<bool> {
        self.read(|connection| Ok(migrate::count(connection, "tenants")? == 0)).await
    }

    /// Creates another tenant, which only tests need so far.
    #[cfg(any(test, feature = "conformance"))]
    pub async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.create_tenant(id, &name, at)).await
    }

    /// What the writer remembers otherwise than the tables have it.
    #[cfg(any(test, feature = "conformance"))]
    pub async fn stale_memory(&self) -> Result<Option<String>> {
        self.write(|transaction| {
            let connection = transaction.connection;
            let stale = transaction.cache.difference(connection)?;
            if stale.is_some() { Ok(stale) } else { transaction.directory.difference(connection) }
        })
        .await
    }
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStore").field("engine", &self.about.engine).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for SqlStore {
    fn durability(&self) -> Durability {
        self.about.durability
    }

    fn engine(&self) -> String {
        self.about.engine.clone()
    }

    fn measures(&self) -> Option<&StoreMetrics> {
        Some(&self.measures)
    }

    fn on_wake(&self, listener: WakeListener) {
        let _ = self.listener.set(listener);
    }

    async fn ping(&self) -> Result<()> {
        // Goes through the writer in any case. A disk that was just written isn't probed.
        let is_fresh = self.condition.is_fresh();
        self.write(move |transaction| if is_fresh { Ok(()) } else { transaction.touch() }).await?;
        self.read(|connection| Ok(connection.query_row("select 1", (), |_| Ok(()))?)).await
    }

    fn fault(&self) -> Option<StorageFault> {
        self.condition.fault()
    }

    async fn close(&self) {
        self.threads.write().unwrap_or_else(PoisonError::into_inner).take();
        let joins = std::mem::take(&mut *self.joins.lock().unwrap_or_else(PoisonError::into_inner));
        let _ = tokio::task::spawn_blocking(move || {
            for join in joins {
                let _ = join.join();
            }
        })
        .await;
    }

    async fn ensure_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.ensure_tenant(id, &name, at)).await
    }

    async fn create_account(&self, context: WriteContext, account: NewAccount) -> Result<AccountRecord> {
        self.write(move |transaction| transaction.create_account(&context, &account)).await
    }

    async fn update_account(
        &self,
        context: WriteContext,
        agent: AgentRef,
        patch: AccountPatch,
    ) -> Result<AccountRecord> {
        self.write(move |transaction| transaction.update_account(&context, &agent, &patch)).await
    }

    async fn archive_account(&self, context: WriteContext, agent: AgentRef) -> Result<AccountRecord> {
        self.write(move |transaction| transaction.archive_account(&context, &agent)).await
    }

    async fn account(&self, tenant: TenantId, agent: AgentRef) -> Result<AccountRecord> {
        self.read(move |connection| agents::read_account(connection, tenant, &agent)).await
    }

    async fn last_owner_of(&self, tenant: TenantId, name: &str) -> Result<Option<Option<UserId>>> {
        let name = name.to_owned();
        self.read(move |connection| agents::last_owner_of(connection, tenant, &name)).await
    }

    async fn accounts(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<AccountRecord>> {
        self.read(move |connection| lists::accounts(connection, tenant, &page)).await
    }

    async fn create_pairing_code(&self, context: WriteContext, code: NewPairingCode) -> Result<()> {
        self.write(move |transaction| transaction.create_pairing_code(&context, &code)).await
    }

    async fn request_pairing(&self, request: NewPairingRequest, _at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.request_pairing(&request)).await
    }

    async fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
        self.read(move |connection| runtimes::open_request(connection, code, at)).await
    }

    async fn pairing(&self, proof: PairingProof, at: Timestamp) -> Result<Pairing> {
        self.read(move |connection| runtimes::redeemable(connection, proof, at)).await
    }

    async fn decide_pairing(&self, context: WriteContext, code: SecretHash, decision: PairingDecision) -> Result<()> {
        self.write(move |transaction| transaction.decide_pairing(&context, code, &decision)).await
    }

    async fn attach_runtime(&self, runtime: NewRuntime, at: Timestamp) -> Result<RuntimeRecord> {
        self.write(move |transaction| transaction.attach_runtime(&runtime, at)).await
    }

    async fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<RuntimeRecord> {
        self.read(move |connection| runtimes::read_runtime(connection, tenant, runtime)).await
    }

    async fn runtimes(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        page: Pagination,
    ) -> Result<ListPage<RuntimeRecord>> {
        self.read(move |connection| lists::runtimes(connection, tenant, agent, &page)).await
    }

    async fn revoke_runtime(&self, context: WriteContext, runtime: RuntimeId) -> Result<RuntimeRecord> {
        self.write(move |transaction| transaction.revoke_runtime(&context, runtime)).await
    }

    async fn change_token(&self, runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<RuntimeRecord> {
        self.write(move |transaction| transaction.change_token(runtime, change, at)).await
    }

    async fn disconnect_runtime(&self, runtime: RuntimeId, at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.disconnect_runtime(runtime, at)).await
    }

    async fn heartbeat(
        &self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: LeaseTimes,
        at: Timestamp,
    ) -> Result<HeartbeatResult> {
        self.write(move |transaction| transaction.heartbeat(runtime, running.as_deref(), leases, at)).await
    }

    async fn renew_claims(&self, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.renew_claims(lease, at)).await
    }

    async fn credential(&self, secret: SecretHash) -> Result<Option<StoredCredential>> {
        self.read(move |connection| keys::credential(connection, secret)).await
    }

    async fn create_key(&self, context: WriteContext, key: NewKey) -> Result<KeyRecord> {
        self.write(move |transaction| transaction.create_key(&context, &key)).await
    }

    async fn revoke_key(&self, context: WriteContext, key: KeyId) -> Result<KeyRecord> {
        self.write(move |transaction| transaction.revoke_key(&context, key)).await
    }

    async fn keys(
        &self,
        tenant: TenantId,
        kind: KeyKind,
        user: Option<UserId>,
        page: Pagination,
    ) -> Result<ListPage<KeyRecord>> {
        self.read(move |connection| lists::keys(connection, tenant, kind, user, &page)).await
    }

    async fn create_run(&self, context: WriteContext, run: NewRun) -> Result<RunCreation> {
        self.settle(UndoMode::Promise, move |transaction| transaction.create_run(context, run).map(Ok)).await
    }

    async fn claim(
        &self,
        runtime: RuntimeId,
        via: Option<ChannelConnection>,
        enforces: Vec<SandboxLimit>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<ClaimedRunRecord>> {
        self.settle(UndoMode::Promise, move |transaction| transaction.claim(runtime, via, &enforces, lease, at).map(Ok))
            .await
    }

    async fn progress(
        &self,
        by: WorkerRef,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<RunStatus> {
        self.settle(UndoMode::Promise, move |transaction| transaction.progress(by, run, &progress, lease, at)).await
    }

    async fn finish(
        &self,
        by: WorkerRef,
        run: RunId,
        outcome: RunResult,
        usage: Option<Json>,
        inputs_taken: Option<Vec<InputId>>,
        at: Timestamp,
    ) -> Result<RunStatus> {
        // An artifact of another workspace is only detected after the first write.
        let undo = match &outcome {
            RunResult::Completed { artifacts, .. } if !artifacts.is_empty() => UndoMode::Savepoint,
            RunResult::Completed { .. } | RunResult::Failed { .. } | RunResult::Deferred { .. } => UndoMode::Promise,
        };
        self.settle(undo, move |transaction| {
            transaction.finish(by, run, (&outcome, usage.as_ref(), inputs_taken.as_deref()), at)
        })
        .await
    }

    async fn cancel_run(&self, context: WriteContext, run: RunId, reason: Option<String>) -> Result<RunRecord> {
        self.write(move |transaction| transaction.cancel_run(&context, run, reason.as_deref())).await
    }

    async fn release(&self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord> {
        self.settle(UndoMode::Promise, move |transaction| transaction.release(by, run, at)).await
    }

    async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.read(move |connection| read_run(connection, tenant, run)).await
    }

    async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Pagination) -> Result<ListPage<RunRecord>> {
        if filter.status == Some(RunStatus::Running) {
            return self.write(move |transaction| transaction.running_runs(tenant, &filter, &page)).await;
        }
        self.read(move |connection| lists::runs(connection, tenant, &filter, &page)).await
    }

    async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Pagination) -> Result<TaskPage> {
        self.read(move |connection| tasks::tasks(connection, tenant, &filter, &page)).await
    }

    async fn live(&self, tenant: TenantId) -> Result<LiveCounts> {
        let runs = self.write(move |transaction| Ok(transaction.cache.live(tenant))).await?;
        self.read(move |connection| lists::live(connection, tenant, runs)).await
    }

    async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<SweepResult> {
        let swept = self.write(move |transaction| transaction.sweep(silence, at)).await?;
        // Time must not stand still because a search index can't be written.
        if let Err(error) = self.index_runs().await {
            tracing::warn!(%error, "the search index of runs could not be updated");
        }
        Ok(swept)
    }

    async fn advance_clock(&self, step: Duration, at: Timestamp) -> Result<Timestamp> {
        self.write(move |transaction| transaction.advance_clock(step, at)).await
    }

    async fn clock(&self) -> Result<Option<Timestamp>> {
        self.read(|connection| Ok(cache::read_clock(connection)?)).await
    }

    async fn retain(&self, retention: RetentionLimits) -> Result<RetentionResult> {
        let mut retained = self.write(move |transaction| transaction.retain(retention)).await?;
        for class in Class::ALL {
            let mut old = self.read(move |connection| removal::old(connection, class, &retention)).await?;
            retained.more |= old.len() > retention.max_rows;
            old.truncate(retention.max_rows);
            for part in old.chunks(ITEMS_PER_TRANSACTION) {
                let part = part.to_vec();
                let removed = self.write(move |transaction| transaction.remove_old(class, &part, &retention)).await?;
                retained.blobs.extend(removed);
            }
        }
        let mut after = Some(0);
        while let Some(from) = after {
            let before = retention.chunks_before;
            after = self.write(move |transaction| transaction.remove_chunks(before, from, RUNS_PER_REMOVAL)).await?;
        }
        Ok(retained.sorted())
    }

    async fn delete_run(&self, context: WriteContext, run: RunId) -> Result<RetentionResult> {
        self.write(move |transaction| transaction.delete_run(&context, run)).await
    }

    async fn delete_conversation(
        &self,
        context: WriteContext,
        conversation: ConversationId,
    ) -> Result<RetentionResult> {
        self.write(move |transaction| transaction.delete_conversation(&context, conversation)).await
    }

    async fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>> {
        self.read(move |connection| removal::unused_blobs(connection, blobs)).await
    }

    async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        self.read(move |connection| streams::run_events(connection, tenant, run, after, limit)).await
    }

    async fn run_outline(&self, tenant: TenantId, run: RunId, upto: i64, shown: OutlineScope) -> Result<RunOutline> {
        self.read(move |connection| streams::run_outline(connection, tenant, run, upto, shown)).await
    }

    async fn output_matches(&self, tenant: TenantId, run: RunId, words: &str, limit: usize) -> Result<OutputMatches> {
        let words = words.to_owned();
        self.read(move |connection| streams::output_matches(connection, tenant, run, &words, limit)).await
    }

    async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
        self.read(move |connection| streams::log(connection, tenant, after, limit)).await
    }

    async fn create_conversation(
        &self,
        context: WriteContext,
        conversation: NewConversation,
    ) -> Result<ConversationRecord> {
        self.write(move |transaction| transaction.create_conversation(&context, &conversation)).await
    }

    async fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<ConversationRecord> {
        self.read(move |connection| conversations::read_conversation(connection, tenant, conversation)).await
    }

    async fn conversations(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<ConversationRecord>> {
        self.read(move |connection| lists::conversations(connection, tenant, &page)).await
    }

    async fn add_message(&self, context: WriteContext, message: NewMessage) -> Result<MessageRecord> {
        self.write(move |transaction| transaction.add_message(&context, &message)).await
    }

    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: Pagination,
    ) -> Result<ListPage<MessageRecord>> {
        self.read(move |connection| lists::messages(connection, tenant, conversation, &page)).await
    }

    async fn add_artifact(&self, context: WriteContext, artifact: NewArtifact) -> Result<ArtifactRecord> {
        self.write(move |transaction| transaction.add_artifact(&context, &artifact)).await
    }

    async fn artifact(&self, tenant: TenantId, artifact: ArtifactId) -> Result<ArtifactRecord> {
        self.read(move |connection| {
            connection
                .prepare_cached(&format!("select {} where uid = ?1 and tenant = ?2", conversations::ARTIFACT))?
                .query_row([IdBytes(artifact.uuid()), IdBytes(tenant.uuid())], rows::artifact)
                .optional()?
                .ok_or(Error::NotFound)
        })
        .await
    }

    async fn artifacts(
        &self,
        tenant: TenantId,
        workspace: WorkspaceId,
        page: Pagination,
    ) -> Result<ListPage<ArtifactRecord>> {
        self.read(move |connection| lists::artifacts(connection, tenant, workspace, &page)).await
    }
}

fn read_run(connection: &Connection, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    connection
        .prepare_cached(&format!(
            "select {} from task_runs r cross join agent_accounts a on a.id = r.agent
             where r.uid = ?1 and r.tenant = ?2",
            rows::RUN
        ))?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], rows::run)
        .optional()?
        .ok_or(Error::NotFound)
}
