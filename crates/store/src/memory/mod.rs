//! The store in memory: the executable specification of [`Store`], kept simple enough to be obviously right.
//!
//! Every method checks first and changes afterwards, all of it under one lock, so there is nothing to roll back. It
//! searches where an engine would keep an index: it serves tests, not crowds.

mod accounts;
mod asks;
mod calls;
mod channels;
mod conversations;
mod delegations;
mod deliveries;
mod frames;
mod keys;
mod page;
mod pairing;
mod peers;
mod people;
mod permissions;
mod pushes;
mod removal;
mod runs;
mod runtimes;
mod spending;
mod state;
mod streams;
mod table;
mod tasks;
mod time;
mod worker;

use std::{
    fmt,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
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

use self::state::State;
use crate::{
    Context, Durability, Error, Fault, Listener, Result, Store,
    record::{
        Account, AccountPatch, AgentRef, Artifact, Beat, Claimed, Conversation, Created, Credential, Key, KeyKind,
        Leases, Listed, Live, LogPage, Message, NewAccount, NewArtifact, NewConversation, NewKey, NewMessage,
        NewPairingCode, NewPairingRequest, NewProgress, NewRun, NewRuntime, Outcome, Outlined, Page, Pairing,
        PairingDecision, PairingRequest, Proof, Retained, Retention, RunEvents, RunFilter, RunOutline, RunRecord,
        Runtime, Swept, TokenChange,
        task::{TaskFilter, TaskListed},
    },
};

/// A store that forgets everything with its process.
#[derive(Default)]
pub struct Memory {
    state: Mutex<Slot>,
    listener: OnceLock<Listener>,
}

#[derive(Debug)]
enum Slot {
    Open(Box<State>),
    Closed,
}

// === impl Memory ===

impl Memory {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes one more tenant, which only tests need yet.
    #[cfg(any(test, feature = "conformance"))]
    pub async fn create_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.create_tenant(id, name, at);
            Ok(())
        })
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        match &*self.lock() {
            Slot::Open(state) => read(state),
            Slot::Closed => Err(closed()),
        }
    }

    /// Changes the state, then tells the listener, without holding the lock.
    fn write<T>(&self, write: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let (answer, mut woken) = match &mut *self.lock() {
            Slot::Open(state) => (write(state), std::mem::take(&mut state.woken)),
            Slot::Closed => return Err(closed()),
        };
        woken.sort_unstable();
        woken.dedup();
        if let Some(listener) = self.listener.get().filter(|_| !woken.is_empty()) {
            listener(&woken);
        }
        answer
    }
}

fn closed() -> Error {
    Error::Internal("the store is closed".to_owned())
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for Memory {
    fn durability(&self) -> Durability {
        Durability::Nothing
    }

    fn engine(&self) -> String {
        "memory".to_owned()
    }

    fn on_wake(&self, listener: Listener) {
        // A second listener is a mistake of the caller; the first one keeps hearing.
        let _ = self.listener.set(listener);
    }

    async fn ping(&self) -> Result<()> {
        self.read(|_| Ok(()))
    }

    fn fault(&self) -> Option<Fault> {
        None
    }

    async fn close(&self) {
        *self.lock() = Slot::Closed;
    }

    async fn ensure_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        self.write(|state| Ok(state.ensure_tenant(id, name, at)))
    }

    async fn create_account(&self, context: Context, account: NewAccount) -> Result<Account> {
        self.write(|state| state.create_account(&context, account))
    }

    async fn update_account(&self, context: Context, agent: AgentRef, patch: AccountPatch) -> Result<Account> {
        self.write(|state| state.update_account(&context, &agent, patch))
    }

    async fn archive_account(&self, context: Context, agent: AgentRef) -> Result<Account> {
        self.write(|state| state.archive_account(&context, &agent))
    }

    async fn account(&self, tenant: TenantId, agent: AgentRef) -> Result<Account> {
        self.read(|state| state.account(tenant, &agent))
    }

    async fn accounts(&self, tenant: TenantId, page: Page) -> Result<Listed<Account>> {
        self.read(|state| state.accounts(tenant, &page))
    }

    async fn create_pairing_code(&self, context: Context, code: NewPairingCode) -> Result<()> {
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

    async fn pairing(&self, proof: Proof, at: Timestamp) -> Result<Pairing> {
        self.read(|state| state.pairing(proof, at))
    }

    async fn decide_pairing(&self, context: Context, code: SecretHash, decision: PairingDecision) -> Result<()> {
        self.write(|state| state.decide_pairing(&context, code, &decision))
    }

    async fn attach_runtime(&self, runtime: NewRuntime, at: Timestamp) -> Result<Runtime> {
        self.write(|state| state.attach_runtime(runtime, at))
    }

    async fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<Runtime> {
        self.read(|state| state.runtime(tenant, runtime))
    }

    async fn runtimes(&self, tenant: TenantId, agent: Option<AgentId>, page: Page) -> Result<Listed<Runtime>> {
        self.read(|state| state.runtimes(tenant, agent, &page))
    }

    async fn revoke_runtime(&self, context: Context, runtime: RuntimeId) -> Result<Runtime> {
        self.write(|state| state.revoke_runtime(&context, runtime))
    }

    async fn change_token(&self, runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<Runtime> {
        self.write(|state| state.change_token(runtime, change, at))
    }

    async fn leave(&self, runtime: RuntimeId, at: Timestamp) -> Result<()> {
        self.write(|state| state.leave(runtime, at))
    }

    async fn heartbeat(
        &self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: Leases,
        at: Timestamp,
    ) -> Result<Beat> {
        self.write(|state| state.heartbeat(runtime, running, leases, at))
    }

    async fn renew_claims(&self, lease: Duration, at: Timestamp) -> Result<()> {
        self.write(|state| {
            state.renew_claims(lease, at);
            Ok(())
        })
    }

    async fn credential(&self, secret: SecretHash) -> Result<Option<Credential>> {
        self.read(|state| Ok(state.credential(secret)))
    }

    async fn create_key(&self, context: Context, key: NewKey) -> Result<Key> {
        self.write(|state| state.create_key(&context, key))
    }

    async fn revoke_key(&self, context: Context, key: KeyId) -> Result<Key> {
        self.write(|state| state.revoke_key(&context, key))
    }

    async fn keys(&self, tenant: TenantId, kind: KeyKind, user: Option<UserId>, page: Page) -> Result<Listed<Key>> {
        self.read(|state| state.keys(tenant, kind, user, &page))
    }

    async fn create_run(&self, context: Context, run: NewRun) -> Result<Created> {
        self.write(|state| state.create_run(&context, run))
    }

    async fn claim(
        &self,
        runtime: RuntimeId,
        via: Option<ChannelId>,
        enforces: Vec<Limit>,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Option<Claimed>> {
        self.write(|state| state.claim(runtime, via, &enforces, lease, at))
    }

    async fn progress(
        &self,
        by: Worker,
        run: RunId,
        progress: NewProgress,
        lease: Duration,
        at: Timestamp,
    ) -> Result<Status> {
        self.write(|state| state.progress(by, run, progress, lease, at))
    }

    async fn finish(
        &self,
        by: Worker,
        run: RunId,
        outcome: Outcome,
        usage: Option<Json>,
        at: Timestamp,
    ) -> Result<Status> {
        self.write(|state| state.finish(by, run, outcome, usage, at))
    }

    async fn cancel_run(&self, context: Context, run: RunId, reason: Option<String>) -> Result<RunRecord> {
        self.write(|state| state.cancel_run(&context, run, reason.as_deref()))
    }

    async fn release(&self, by: Worker, run: RunId, at: Timestamp) -> Result<RunRecord> {
        self.write(|state| state.release(by, run, at))
    }

    async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord> {
        self.read(|state| state.run(tenant, run))
    }

    async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Page) -> Result<Listed<RunRecord>> {
        self.read(|state| state.runs(tenant, &filter, &page))
    }

    async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Page) -> Result<TaskListed> {
        self.read(|state| state.tasks(tenant, &filter, &page))
    }

    async fn live(&self, tenant: TenantId) -> Result<Live> {
        self.read(|state| Ok(state.live(tenant)))
    }

    async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<Swept> {
        self.write(|state| Ok(state.sweep(silence, at)))
    }

    async fn advance_clock(&self, step: Duration, at: Timestamp) -> Result<Timestamp> {
        self.write(|state| Ok(state.advance_clock(step, at)))
    }

    async fn clock(&self) -> Result<Option<Timestamp>> {
        self.read(|state| Ok(state.clock))
    }

    async fn retain(&self, retention: Retention) -> Result<Retained> {
        self.write(|state| Ok(state.retain(retention)))
    }

    async fn delete_run(&self, context: Context, run: RunId) -> Result<Retained> {
        self.write(|state| state.delete_run(&context, run))
    }

    async fn delete_conversation(&self, context: Context, conversation: ConversationId) -> Result<Retained> {
        self.write(|state| state.delete_conversation(&context, conversation))
    }

    async fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>> {
        self.read(|state| Ok(state.unused_blobs(blobs)))
    }

    async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        self.read(|state| state.run_events(tenant, run, after, limit))
    }

    async fn run_outline(&self, tenant: TenantId, run: RunId, upto: i64, shown: Outlined) -> Result<RunOutline> {
        self.read(|state| state.run_outline(tenant, run, upto, shown))
    }

    async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage> {
        self.read(|state| Ok(state.log(tenant, after, limit)))
    }

    async fn create_conversation(&self, context: Context, conversation: NewConversation) -> Result<Conversation> {
        self.write(|state| state.create_conversation(&context, conversation))
    }

    async fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<Conversation> {
        self.read(|state| state.conversation(tenant, conversation))
    }

    async fn conversations(&self, tenant: TenantId, page: Page) -> Result<Listed<Conversation>> {
        self.read(|state| state.conversations(tenant, &page))
    }

    async fn add_message(&self, context: Context, message: NewMessage) -> Result<Message> {
        self.write(|state| state.add_message(&context, message))
    }

    async fn messages(&self, tenant: TenantId, conversation: ConversationId, page: Page) -> Result<Listed<Message>> {
        self.read(|state| state.messages(tenant, conversation, &page))
    }

    async fn add_artifact(&self, context: Context, artifact: NewArtifact) -> Result<Artifact> {
        self.write(|state| state.add_artifact(&context, artifact))
    }

    async fn artifact(&self, tenant: TenantId, artifact: ArtifactId) -> Result<Artifact> {
        self.read(|state| state.artifact(tenant, artifact))
    }

    async fn artifacts(&self, tenant: TenantId, workspace: WorkspaceId, page: Page) -> Result<Listed<Artifact>> {
        self.read(|state| state.artifacts(tenant, workspace, &page))
    }
}

// === impl Slot ===

impl Default for Slot {
    fn default() -> Self {
        Self::Open(Box::default())
    }
}
