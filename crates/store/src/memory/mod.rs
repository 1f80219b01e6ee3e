//! The store in memory: the executable specification of [`Store`], kept simple enough to be obviously right.
//!
//! Every method checks first and changes afterwards, all under one lock, so there is nothing to roll back. It searches
//! where an engine would use an index: it is for tests, not for load.

mod accounts;
mod channels;
mod conversations;
mod delegations;
mod deliveries;
mod frames;
mod keys;
mod nodes;
mod notifications;
mod page;
mod pairing;
mod peers;
mod permissions;
mod pushes;
mod quotas;
mod removal;
mod runs;
mod runtimes;
mod shared_values;
mod state;
mod streams;
mod table;
mod tasks;
mod time;
mod trait_impls;
mod users;
mod worker;
mod worker_requests;
mod worktrees;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
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

use self::state::ModelState;
use crate::{
    Durability, Error, Result, StorageFault, Store, WakeHint, WakeListener, WriteContext,
    metrics::StoreMetrics,
    record::{
        AccountPatch, AccountRecord, AgentRef, ArtifactRecord, ClaimedRunRecord, ConversationRecord, HeartbeatResult,
        KeyKind, KeyRecord, LeaseTimes, ListPage, LiveCounts, LogPage, MessageRecord, NewAccount, NewArtifact,
        NewConversation, NewKey, NewMessage, NewPairingCode, NewPairingRequest, NewProgress, NewRun, NewRuntime,
        OutlineScope, OutputMatches, Pagination, Pairing, PairingDecision, PairingProof, PairingRequest,
        RetentionLimits, RetentionResult, RunCreation, RunEvents, RunFilter, RunOutline, RunRecord, RunResult,
        RuntimeRecord, StoredCredential, SweepResult, TokenChange,
        channel::ChannelConnection,
        task::{TaskFilter, TaskPage},
    },
};

/// A store that keeps everything in memory only.
pub struct MemoryStore {
    shared: Arc<SharedModel>,
    /// The node's place among the listeners.
    place: usize,
    closed: AtomicBool,
}

/// What the stores of all nodes have in common.
struct SharedModel {
    state: Mutex<ModelState>,
    /// One per node, in the order in which the nodes were made.
    nodes: RwLock<Vec<ModelNode>>,
}

/// How a node is notified of changes.
#[derive(Default)]
struct ModelNode {
    listener: Option<WakeListener>,
    /// Which hints of other nodes' changes are lost on their way here.
    loss: Option<HintLoss>,
}

/// Whether a hint gets lost between two nodes.
pub type HintLoss = Box<dyn Fn() -> bool + Send + Sync>;

// === impl MemoryStore ===

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates another tenant, which only tests need so far.
    #[cfg(any(test, feature = "conformance"))]
    pub async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.create_tenant(id, name, at);
            Ok(())
        })
    }

    /// The store of another node on the same state, as of another process on the same database. It is closed on its own.
    /// Hints of changes that others make are lost as `loss` says.
    #[must_use]
    pub fn another_node(&self, loss: HintLoss) -> Self {
        let mut nodes = self.shared.nodes.write().unwrap_or_else(PoisonError::into_inner);
        nodes.push(ModelNode { listener: None, loss: Some(loss) });
        Self { shared: Arc::clone(&self.shared), place: nodes.len() - 1, closed: AtomicBool::new(false) }
    }

    fn lock(&self) -> Result<MutexGuard<'_, ModelState>> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        Ok(self.shared.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, read: impl FnOnce(&ModelState) -> Result<T>) -> Result<T> {
        read(&*self.lock()?)
    }

    /// Changes the state, then notifies the listeners without holding the lock.
    fn write<T>(&self, write: impl FnOnce(&mut ModelState) -> Result<T>) -> Result<T> {
        let mut state = self.lock()?;
        let (answer, mut woken) = (write(&mut state), std::mem::take(&mut state.woken));
        drop(state);
        woken.sort_unstable();
        woken.dedup();
        if !woken.is_empty() {
            self.notify(&woken);
        }
        answer
    }

    fn notify(&self, woken: &[WakeHint]) {
        let nodes = self.shared.nodes.read().unwrap_or_else(PoisonError::into_inner);
        for (place, node) in nodes.iter().enumerate() {
            let Some(listener) = &node.listener else { continue };
            match &node.loss {
                Some(is_lost) if place != self.place => {
                    let arrived: Vec<WakeHint> = woken.iter().filter(|_| !is_lost()).copied().collect();
                    if !arrived.is_empty() {
                        listener(&arrived);
                    }
                }
                Some(_) | None => listener(woken),
            }
        }
    }
}

fn closed() -> Error {
    Error::Internal("the store is closed".to_owned())
}

impl Default for MemoryStore {
    fn default() -> Self {
        let shared = SharedModel { state: Mutex::default(), nodes: RwLock::new(vec![ModelNode::default()]) };
        Self { shared: Arc::new(shared), place: 0, closed: AtomicBool::new(false) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn durability(&self) -> Durability {
        Durability::Nothing
    }

    fn engine(&self) -> String {
        "memory".to_owned()
    }

    fn measures(&self) -> Option<&StoreMetrics> {
        None
    }

    fn on_wake(&self, listener: WakeListener) {
        let mut nodes = self.shared.nodes.write().unwrap_or_else(PoisonError::into_inner);
        // A second listener of a node is a caller's mistake. The first one stays.
        nodes[self.place].listener.get_or_insert(listener);
    }

    async fn ping(&self) -> Result<()> {
        self.read(|_| Ok(()))
    }

    fn fault(&self) -> Option<StorageFault> {
        None
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    async fn ensure_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        self.write(|state| Ok(state.ensure_tenant(id, name, at)))
    }

    async fn create_account(&self, context: WriteContext, account: NewAccount) -> Result<AccountRecord> {
        self.write(|state| state.create_account(&context, account))
    }

    async fn update_account(
        &self,
        context: WriteContext,
        agent: AgentRef,
        patch: AccountPatch,
    ) -> Result<AccountRecord> {
        self.write(|state| state.update_account(&context, &agent, patch))
    }

    async fn archive_account(&self, context: WriteContext, agent: AgentRef) -> Result<AccountRecord> {
        self.write(|state| state.archive_account(&context, &agent))
    }

    async fn account(&self, tenant: TenantId, agent: AgentRef) -> Result<AccountRecord> {
        self.read(|state| state.account(tenant, &agent))
    }

    async fn last_owner_of(&self, tenant: TenantId, name: &str) -> Result<Option<Option<UserId>>> {
        self.read(|state| Ok(state.last_owner_of(tenant, name)))
    }

    async fn accounts(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<AccountRecord>> {
        self.read(|state| state.accounts(tenant, &page))
    }

    async fn create_pairing_code(&self, context: WriteContext, code: NewPairingCode) -> Result<()> {
        self.write(|state| state.create_pairing_code(&context, code))
    }

    async fn request_pairing(&self, request: NewPairingRequest, _at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.request_pairing(request);
            Ok(())
        })
    }

    async fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest> {
        self.read(|state| state.pairing_request(code, at))
    }

    async fn pairing(&self, proof: PairingProof, at: Timestamp) -> Result<Pairing> {
        self.read(|state| state.pairing(proof, at))
    }

    async fn decide_pairing(&self, context: WriteContext, code: SecretHash, decision: PairingDecision) -> Result<()> {
        self.write(|state| state.decide_pairing(&context, code, &decision))
    }

    async fn attach_runtime(&self, runtime: NewRuntime, at: Timestamp) -> Result<RuntimeRecord> {
        self.write(|state| state.attach_runtime(runtime, at))
    }

    async fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<RuntimeRecord> {
        self.read(|state| state.runtime(tenant, runtime))
    }

    async fn runtimes(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        page: Pagination,
    ) -> Result<ListPage<RuntimeRecord>> {
        self.read(|state| state.runtimes(tenant, agent, &page))
    }

    async fn revoke_runtime(&self, context: WriteContext, runtime: RuntimeId) -> Result<RuntimeRecord> {
        self.write(|state| state.revoke_runtime(&context, runtime))
    }

    async fn change_token(&self, runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<RuntimeRecord> {
        self.write(|state| state.change_token(runtime, change, at))
    }

    async fn disconnect_runtime(&self, runtime: RuntimeId, at: Timestamp) -> Result<()> {
        self.write(|state| state.disconnect_runtime(runtime, at))
    }

    async fn heartbeat(
        &self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: LeaseTimes,
        at: Timestamp,
    ) -> Result<HeartbeatResult> {
        self.write(|state| state.heartbeat(runtime, running, leases, at))
    }

    async fn renew_claims(&self, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.renew_claims(lease, at);
            Ok(())
        })
    }

    async fn credential(&self, secret: SecretHash) -> Result<Option<StoredCredential>> {
        self.read(|state| Ok(state.credential(secret)))
    }

    async fn create_key(&self, context: WriteContext, key: NewKey) -> Result<KeyRecord> {
        self.write(|state| state.create_key(&context, key))
    }

    async fn revoke_key(&self, context: WriteContext, key: KeyId) -> Result<KeyRecord> {
        self.write(|state| state.revoke_key(&context, key))
    }

    async fn keys(
        &self,
        tenant: TenantId,
        kind: KeyKind,
        user: Option<UserId>,
        page: Pagination,
    ) -> Result<ListPage<KeyRecord>> {
        self.read(|state| state.keys(tenant, kind, user, &page))
    }

    async fn create_run(&self, context: WriteContext, run: NewRun) -> Result<RunCreation> {
        self.write(|state| state.create_run(&context, run))
    }

    async fn claim(
        &self,
        runtime: RuntimeId,
        via: Option<ChannelConnection>,
        enforces: Vec<SandboxLimit>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<ClaimedRunRecord>> {
        self.write(|state| state.claim(runtime, via, &enforces, lease, at))
    }

    async fn progress(
        &self,
        by: WorkerRef,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<RunStatus> {
        self.write(|state| state.progress(by, run, progress, lease, at))
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
        self.write(|state| state.finish(by, run, (outcome, usage, inputs_taken), at))
    }

    async fn cancel_run(&self, context: WriteContext, run: RunId, reason: Option<String>) -> Result<RunRecord> {
        self.write(|state| state.cancel_run(&context, run, reason.as_deref()))
    }

    async fn release(&self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord> {
        self.write(|state| state.release(by, run, at))
    }

    async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.read(|state| state.run(tenant, run))
    }

    async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Pagination) -> Result<ListPage<RunRecord>> {
        self.read(|state| state.runs(tenant, &filter, &page))
    }

    async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Pagination) -> Result<TaskPage> {
        self.read(|state| state.tasks(tenant, &filter, &page))
    }

    async fn live(&self, tenant: TenantId) -> Result<LiveCounts> {
        self.read(|state| Ok(state.live(tenant)))
    }

    async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<SweepResult> {
        self.write(|state| Ok(state.sweep(silence, at)))
    }

    async fn advance_clock(&self, step: Duration, at: Timestamp) -> Result<Timestamp> {
        self.write(|state| Ok(state.advance_clock(step, at)))
    }

    async fn clock(&self) -> Result<Option<Timestamp>> {
        self.read(|state| Ok(state.clock))
    }

    async fn retain(&self, retention: RetentionLimits) -> Result<RetentionResult> {
        self.write(|state| Ok(state.retain(retention)))
    }

    async fn delete_run(&self, context: WriteContext, run: RunId) -> Result<RetentionResult> {
        self.write(|state| state.delete_run(&context, run))
    }

    async fn delete_conversation(
        &self,
        context: WriteContext,
        conversation: ConversationId,
    ) -> Result<RetentionResult> {
        self.write(|state| state.delete_conversation(&context, conversation))
    }

    async fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>> {
        self.read(|state| Ok(state.unused_blobs(blobs)))
    }

    async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        self.read(|state| state.run_events(tenant, run, after, limit))
    }

    async fn run_outline(&self, tenant: TenantId, run: RunId, upto: i64, shown: OutlineScope) -> Result<RunOutline> {
        self.read(|state| state.run_outline(tenant, run, upto, shown))
    }

    async fn output_matches(&self, tenant: TenantId, run: RunId, words: &str, limit: usize) -> Result<OutputMatches> {
        self.read(|state| state.output_matches(tenant, run, words, limit))
    }

    async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
        self.read(|state| Ok(state.log(tenant, after, limit)))
    }

    async fn create_conversation(
        &self,
        context: WriteContext,
        conversation: NewConversation,
    ) -> Result<ConversationRecord> {
        self.write(|state| state.create_conversation(&context, conversation))
    }

    async fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<ConversationRecord> {
        self.read(|state| state.conversation(tenant, conversation))
    }

    async fn conversations(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<ConversationRecord>> {
        self.read(|state| state.conversations(tenant, &page))
    }

    async fn add_message(&self, context: WriteContext, message: NewMessage) -> Result<MessageRecord> {
        self.write(|state| state.add_message(&context, message))
    }

    async fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: Pagination,
    ) -> Result<ListPage<MessageRecord>> {
        self.read(|state| state.messages(tenant, conversation, &page))
    }

    async fn add_artifact(&self, context: WriteContext, artifact: NewArtifact) -> Result<ArtifactRecord> {
        self.write(|state| state.add_artifact(&context, artifact))
    }

    async fn artifact(&self, tenant: TenantId, artifact: ArtifactId) -> Result<ArtifactRecord> {
        self.read(|state| state.artifact(tenant, artifact))
    }

    async fn artifacts(
        &self,
        tenant: TenantId,
        workspace: WorkspaceId,
        page: Pagination,
    ) -> Result<ListPage<ArtifactRecord>> {
        self.read(|state| state.artifacts(tenant, workspace, &page))
    }
}
