//! The embedded engine: SQLite in WAL mode, one writer thread with group commit, a few read-only connections.
//!
//! An answer is given only after the commit that holds it was flushed to the disk.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use attache_protocol::{
    AgentId, ArtifactId, ChannelId, ConversationId, Json, KeyId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    WorkspaceId,
    rules::run::{Status, Worker},
    secret::SecretHash,
    wire::run::Limit,
};
use rusqlite::OptionalExtension as _;

mod agents;
mod asks;
mod backup;
mod cache;
mod calls;
mod channels;
mod condition;
mod content;
mod damage;
mod delegations;
mod deliveries;
mod directory;
mod frames;
mod grants;
mod journal;
mod keys;
mod ledger;
mod lists;
mod log_keys;
mod open;
mod owner;
mod packed;
mod peer_tasks;
mod peers;
mod people;
mod permissions;
mod pushes;
mod readers;
mod removal;
mod rows;
mod runs;
mod runtimes;
mod spending;
mod statements;
mod streams;
mod sweep;
mod tasks;
#[cfg(test)]
mod tests;
mod writer;

use condition::Condition;
use readers::Readers;
use rows::Key16;
use writer::{Ear, Transaction, Undo, Writer};

use crate::{
    Context, Durability, Error, Fault, Listener, Result, Store,
    measure::Measures,
    record::{
        Account, AccountPatch, AgentRef, Artifact, Beat, Claimed, Class, Conversation, Created, Credential, Key,
        KeyKind, Leases, Listed, Live, LogPage, Message, NewAccount, NewArtifact, NewConversation, NewKey, NewMessage,
        NewPairingCode, NewPairingRequest, NewProgress, NewRun, NewRuntime, Outcome, Outlined, Page, Pairing,
        PairingDecision, PairingRequest, Proof, Retained, Retention, RunEvents, RunFilter, RunOutline, RunRecord,
        Runtime, Swept, TokenChange,
        retention::ITEMS_PER_TRANSACTION,
        task::{TaskFilter, TaskListed},
    },
};

/// How many runs lose their chunks in one transaction, so that forgetting never holds the writer for long.
const RUNS_PER_REMOVAL: usize = 500;

/// A database file and the threads that work on it.
pub struct Sqlite {
    path: PathBuf,
    /// Taken away by `close`.
    threads: RwLock<Option<Arc<Threads>>>,
    joins: Mutex<Vec<std::thread::JoinHandle<()>>>,
    listener: Arc<Ear>,
    measures: Arc<Measures>,
    condition: Condition,
}

#[derive(Debug)]
struct Threads {
    writer: Writer,
    readers: Readers,
}

// === impl Sqlite ===

impl Sqlite {
    /// Opens or makes the database and brings its schema up to date. Blocks for some seconds while another store, which was
    /// dropped or whose program is ending, still writes there.
    pub fn open(path: &Path) -> Result<Self> {
        let listener = Arc::new(Ear::new());
        let measures = Arc::new(Measures::default());
        let condition = Condition::default();
        let shared = writer::Shared {
            listener: Arc::clone(&listener),
            measures: Arc::clone(&measures),
            condition: condition.clone(),
        };
        let (writer, writer_thread) = Writer::start(path.to_owned(), shared)?;
        let (readers, mut joins) = Readers::start(path, &measures)?;
        joins.push(writer_thread);
        Ok(Self {
            path: path.to_owned(),
            threads: RwLock::new(Some(Arc::new(Threads { writer, readers }))),
            joins: Mutex::new(joins),
            listener,
            measures,
            condition,
        })
    }

    /// The schema of a new database, as it is checked in beside the migrations.
    pub fn schema(path: &Path) -> Result<String> {
        Ok(open::schema(&open::writer(path)?)?)
    }

    /// Copies a database, also one that a hub is writing to, into a file that does not exist yet. Blocks.
    pub fn backup(path: &Path, to: &Path) -> Result<()> {
        backup::copy(path, to)
    }

    fn threads(&self) -> Result<Arc<Threads>> {
        let threads = self.threads.read().unwrap_or_else(PoisonError::into_inner);
        threads.clone().ok_or_else(|| Error::Internal("the store is closed".to_owned()))
    }

    /// A write that changes nothing when it answers an error.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Transaction<'_, '_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.writer.write(Undo::Savepoint, move |transaction| job(transaction).map(Ok)).await
    }

    /// A write whose error may come with something to keep.
    async fn settle<T: Send + 'static>(
        &self,
        undo: Undo,
        job: impl FnOnce(&mut Transaction<'_, '_>) -> Result<Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.writer.write(undo, job).await
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.threads()?.readers.read(query).await
    }

    #[cfg(any(test, feature = "conformance"))]
    /// Makes one more tenant, which only tests need yet.
    pub async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.create_tenant(id, &name, at)).await
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Sqlite {
    fn durability(&self) -> Durability {
        Durability::PowerLoss
    }

    fn engine(&self) -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn measures(&self) -> Option<&Measures> {
        Some(&self.measures)
    }

    fn on_wake(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    async fn ping(&self) -> Result<()> {
        // Through the writer in any case; a disk that took something a moment ago is spared.
        let is_fresh = self.condition.is_fresh();
        self.write(move |transaction| if is_fresh { Ok(()) } else { transaction.touch() }).await?;
        self.read(|connection| Ok(connection.query_row("select 1", [], |_| Ok(()))?)).await
    }

    fn fault(&self) -> Option<Fault> {
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

    async fn create_account(&self, context: Context, account: NewAccount) -> Result<Account> {
        self.write(move |transaction| transaction.create_account(&context, &account)).await
    }

    async fn update_account(&self, context: Context, agent: AgentRef, patch: AccountPatch) -> Result<Account> {
        self.write(move |transaction| transaction.update_account(&context, &agent, &patch)).await
    }

    async fn archive_account(&self, context: Context, agent: AgentRef) -> Result<Account> {
        self.write(move |transaction| transaction.archive_account(&context, &agent)).await
    }

    async fn account(&self, tenant: TenantId, agent: AgentRef) -> Result<Account> {
        self.read(move |connection| agents::read_account(connection, tenant, &agent)).await
    }

    async fn accounts(&self, tenant: TenantId, page: Page) -> Result<Listed<Account>> {
        self.read(move |connection| lists::accounts(connection, tenant, &page)).await
    }

    async fn create_pairing_code(&self, context: Context, code: NewPairingCode) -> Result<()> {
        self.write(move |transaction| transaction.create_pairing_code(&context, &code)).await
    }

    async fn request_pairing(&self, request: NewPairingRequest, _at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.request_pairing(&request)).await
    }

    async fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
        self.read(move |connection| runtimes::open_request(connection, code, at)).await
    }

    async fn pairing(&self, proof: Proof, at: Timestamp) -> Result<Pairing> {
        self.read(move |connection| runtimes::redeemable(connection, proof, at)).await
    }

    async fn decide_pairing(&self, context: Context, code: SecretHash, decision: PairingDecision) -> Result<()> {
        self.write(move |transaction| transaction.decide_pairing(&context, code, &decision)).await
    }

    async fn attach_runtime(&self, runtime: NewRuntime, at: Timestamp) -> Result<Runtime> {
        self.write(move |transaction| transaction.attach_runtime(&runtime, at)).await
    }

    async fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<Runtime> {
        self.read(move |connection| runtimes::read_runtime(connection, tenant, runtime)).await
    }

    async fn runtimes(&self, tenant: TenantId, agent: Option<AgentId>, page: Page) -> Result<Listed<Runtime>> {
        self.read(move |connection| lists::runtimes(connection, tenant, agent, &page)).await
    }

    async fn revoke_runtime(&self, context: Context, runtime: RuntimeId) -> Result<Runtime> {
        self.write(move |transaction| transaction.revoke_runtime(&context, runtime)).await
    }

    async fn change_token(&self, runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<Runtime> {
        self.write(move |transaction| transaction.change_token(runtime, change, at)).await
    }

    async fn leave(&self, runtime: RuntimeId, at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.leave(runtime, at)).await
    }

    async fn heartbeat(
        &self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: Leases,
        at: Timestamp,
    ) -> Result<Beat> {
        self.write(move |transaction| transaction.heartbeat(runtime, running.as_deref(), leases, at)).await
    }

    async fn renew_claims(&self, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(move |transaction| transaction.renew_claims(lease, at)).await
    }

    async fn credential(&self, secret: SecretHash) -> Result<Option<Credential>> {
        self.read(move |connection| keys::credential(connection, secret)).await
    }

    async fn create_key(&self, context: Context, key: NewKey) -> Result<Key> {
        self.write(move |transaction| transaction.create_key(&context, &key)).await
    }

    async fn revoke_key(&self, context: Context, key: KeyId) -> Result<Key> {
        self.write(move |transaction| transaction.revoke_key(&context, key)).await
    }

    async fn keys(&self, tenant: TenantId, kind: KeyKind, user: Option<UserId>, page: Page) -> Result<Listed<Key>> {
        self.read(move |connection| lists::keys(connection, tenant, kind, user, &page)).await
    }

    async fn create_run(&self, context: Context, run: NewRun) -> Result<Created> {
        self.settle(Undo::Promise, move |transaction| transaction.create_run(context, run).map(Ok)).await
    }

    async fn claim(
        &self,
        runtime: RuntimeId,
        via: Option<ChannelId>,
        enforces: Vec<Limit>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<Claimed>> {
        self.settle(Undo::Promise, move |transaction| transaction.claim(runtime, via, &enforces, lease, at).map(Ok))
            .await
    }

    async fn progress(
        &self,
        by: Worker,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Status> {
        self.settle(Undo::Promise, move |transaction| transaction.progress(by, run, &progress, lease, at)).await
    }

    async fn finish(
        &self,
        by: Worker,
        run: RunId,
        outcome: Outcome,
        usage: Option<Json>,
        at: Timestamp,
    ) -> Result<Status> {
        // An artifact of another workspace is only found after the first write.
        let undo = match &outcome {
            Outcome::Completed { artifacts, .. } if !artifacts.is_empty() => Undo::Savepoint,
            Outcome::Completed { .. } | Outcome::Failed { .. } => Undo::Promise,
        };
        self.settle(undo, move |transaction| transaction.finish(by, run, &outcome, usage.as_ref(), at)).await
    }

    async fn cancel_run(&self, context: Context, run: RunId, reason: Option<String>) -> Result<RunRecord> {
        self.write(move |transaction| transaction.cancel_run(&context, run, reason.as_deref())).await
    }

    async fn release(&self, by: Worker, run: RunId, at: Timestamp) -> Result<RunRecord> {
        self.settle(Undo::Promise, move |transaction| transaction.release(by, run, at)).await
    }

    async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.read(move |connection| read_run(connection, tenant, run)).await
    }

    async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Page) -> Result<Listed<RunRecord>> {
        if filter.status == Some(Status::Running) {
            return self.write(move |transaction| transaction.running_runs(tenant, &filter, &page)).await;
        }
        self.read(move |connection| lists::runs(connection, tenant, &filter, &page)).await
    }

    async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Page) -> Result<TaskListed> {
        self.read(move |connection| tasks::tasks(connection, tenant, &filter, &page)).await
    }

    async fn live(&self, tenant: TenantId) -> Result<Live> {
        let runs = self.write(move |transaction| Ok(transaction.cache.live(tenant))).await?;
        self.read(move |connection| lists::live(connection, tenant, runs)).await
    }

    async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<Swept> {
        self.write(move |transaction| transaction.sweep(silence, at)).await
    }

    async fn advance_clock(&self, step: Duration, at: Timestamp) -> Result<Timestamp> {
        self.write(move |transaction| transaction.advance_clock(step, at)).await
    }

    async fn clock(&self) -> Result<Option<Timestamp>> {
        self.read(|connection| Ok(cache::read_clock(connection)?)).await
    }

    async fn retain(&self, retention: Retention) -> Result<Retained> {
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

    async fn delete_run(&self, context: Context, run: RunId) -> Result<Retained> {
        self.write(move |transaction| transaction.delete_run(&context, run)).await
    }

    async fn delete_conversation(&self, context: Context, conversation: ConversationId) -> Result<Retained> {
        self.write(move |transaction| transaction.delete_conversation(&context, conversation)).await
    }

    async fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>> {
        self.read(move |connection| removal::unused_blobs(connection, blobs)).await
    }

    async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        self.read(move |connection| streams::run_events(connection, tenant, run, after, limit)).await
    }

    async fn run_outline(&self, tenant: TenantId, run: RunId, upto: i64, shown: Outlined) -> Result<RunOutline> {
        self.read(move |connection| streams::run_outline(connection, tenant, run, upto, shown)).await
    }

    async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
        self.read(move |connection| streams::log(connection, tenant, after, limit)).await
    }

    async fn create_conversation(&self, context: Context, conversation: NewConversation) -> Result<Conversation> {
        self.write(move |transaction| transaction.create_conversation(&context, &conversation)).await
    }

    async fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<Conversation> {
        self.read(move |connection| content::read_conversation(connection, tenant, conversation)).await
    }

    async fn conversations(&self, tenant: TenantId, page: Page) -> Result<Listed<Conversation>> {
        self.read(move |connection| lists::conversations(connection, tenant, &page)).await
    }

    async fn add_message(&self, context: Context, message: NewMessage) -> Result<Message> {
        self.write(move |transaction| transaction.add_message(&context, &message)).await
    }

    async fn messages(&self, tenant: TenantId, conversation: ConversationId, page: Page) -> Result<Listed<Message>> {
        self.read(move |connection| lists::messages(connection, tenant, conversation, &page)).await
    }

    async fn add_artifact(&self, context: Context, artifact: NewArtifact) -> Result<Artifact> {
        self.write(move |transaction| transaction.add_artifact(&context, &artifact)).await
    }

    async fn artifact(&self, tenant: TenantId, artifact: ArtifactId) -> Result<Artifact> {
        self.read(move |connection| {
            connection
                .prepare_cached(&format!("select {} where uid = ?1 and tenant = ?2", content::ARTIFACT))?
                .query_row([Key16(artifact.uuid()), Key16(tenant.uuid())], rows::artifact)
                .optional()?
                .ok_or(Error::NotFound)
        })
        .await
    }

    async fn artifacts(&self, tenant: TenantId, workspace: WorkspaceId, page: Page) -> Result<Listed<Artifact>> {
        self.read(move |connection| lists::artifacts(connection, tenant, workspace, &page)).await
    }
}

fn read_run(connection: &rusqlite::Connection, tenant: TenantId, run: RunId) -> Result<RunRecord> {
    connection
        .prepare_cached(&format!(
            "select {} from task_runs r cross join agent_accounts a on a.id = r.agent
             where r.uid = ?1 and r.tenant = ?2",
            rows::RUN
        ))?
        .query_row([Key16(run.uuid()), Key16(tenant.uuid())], rows::run)
        .optional()?
        .ok_or(Error::NotFound)
}
