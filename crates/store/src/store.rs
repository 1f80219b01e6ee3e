//! The store as used by the hub.

use std::{fmt::Debug, time::Duration};

use attache_protocol::{
    Actor, AgentId, ArtifactId, ChannelId, ConversationId, InputId, Json, KeyId, RunId, RuntimeId, TenantId, Timestamp,
    UserId, WorkspaceId,
    rules::run::{RunStatus, WorkerRef},
    secret::SecretHash,
    wire::run::SandboxLimit,
};

use crate::{
    ChannelStore, DelegationStore, DeliveryStore, NodeStore, NotificationStore, PeerStore, PushStore, QuotaStore,
    Result, SharedValueStore, StorageFault, UserStore, WorkerRequestStore, WorktreeStore,
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
    store_part::store_part,
};

/// Who does something, when, and for which tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteContext {
    pub tenant: TenantId,
    pub actor: Actor,
    /// The person on whose behalf it is done, if known. They own the agents, runs and conversations it creates. The
    /// user id isn't validated.
    pub user: Option<UserId>,
    pub at: Timestamp,
}

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every commit is flushed to disk before it is acknowledged.
    PowerLoss,
    /// Nothing survives the process.
    Nothing,
}

/// A hint, sent after a commit, that something changed. Losing one costs latency, never correctness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WakeHint {
    /// The run's stream has new events.
    Run(RunId),
    /// The tenant's log has new rows.
    Tenant(TenantId),
    /// A run of this agent became pending.
    Queue(AgentId),
    /// A runtime was attached, superseded or revoked: credentials of this agent changed.
    Runtime(AgentId),
    /// A frame waits for this channel's peer, or the channel itself changed.
    Channel(ChannelId),
    /// A permission request or an ask of this run was settled.
    Asked(RunId),
    /// A delivery is due.
    Deliveries,
    /// A peer was created, changed, trusted or archived, or the lease of a name is free again.
    Peers,
    /// This key or session was revoked.
    Key(KeyId),
    /// What people of the tenant may do changed: a user, the access rules, or an agent's owner or callers.
    Rights(TenantId),
    /// Hints of other nodes may have been lost: anything may have changed.
    Everything,
}

/// Receives hints right after the commit. It must not block.
pub type WakeListener = Box<dyn Fn(&[WakeHint]) + Send + Sync>;

store_part! {
    /// The write and read operations. Unless a method says otherwise, unknown ids and ids of another tenant are
    /// [`crate::Error::NotFound`]. A tenant that `ensure_tenant` didn't create is unknown: nothing is created in it, and
    /// its lists and log are empty. A filter without matches gives an empty list. A cursor that this store didn't create is
    /// `NotFound`.
    ///
    /// A method that returns an error changed nothing, except for the row that records a stale epoch. Ids, tokens and codes
    /// of new items are new: the caller draws them at random. *Order of creation* is the order in which the store created
    /// items, whatever their times and ids: lists follow it, and so do operations on several items. A deadline has passed
    /// if it is at or before the call's time.
    ///
    /// Writes append these log rows (`type` and `data`), in the order shown:
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `ensure_tenant` | `tenant.created {"name"}` when it is new |
    /// | `create_account` | `agent.created {"agent_id","name"}` |
    /// | `update_account` | if it becomes private, first what `revoke_runtime`, `revoke_key` and `revoke_grant` log for what others added; if its approvals need a passkey from now on, what `revoke_grant` logs for every approval; then `agent.updated {"agent_id","callers"?,"owner_id"?,"confirm_approvals"?,"ended"?}` |
    /// | `archive_account` | first what `revoke_runtime` and `cancel_run` (reason `agent archived`) log for its active runtime and its live runs in order of creation, then `agent.archived {"agent_id"}` |
    /// | `create_pairing_code` | `pairing.code_created {"agent_id","expires_at"}` |
    /// | `decide_pairing` | `pairing.confirmed {"agent_id"}` or `pairing.rejected {}` |
    /// | `attach_runtime` | `runtime.superseded {"agent_id","runtime_id"}` and the loss of its claims if there was an active one, then `runtime.attached {"agent_id","runtime_id","device_name"}` |
    /// | `revoke_runtime` | `runtime.revoked {"agent_id","runtime_id"}`, then the loss of its claims |
    /// | `change_token` | `runtime.token_rotated {"agent_id","runtime_id"}` when an offered token is adopted; `runtime.token_reused {"agent_id","runtime_id"}` when a replaced one is used, once a minute |
    /// | `heartbeat` | `runtime.online {"agent_id","runtime_id"}` when it was offline, then the loss of unnamed claims |
    /// | `create_key` | `key.created {"key_id","name","role"}`; for a session `session.opened {"session_id","user_id","role","opener","address","passkey_id"?}` |
    /// | `revoke_key` | `key.revoked {"key_id"}`, for a session `session.ended {"session_id"}`; then the same for every session that it opened and that was not revoked, in order of creation |
    /// | `create_run` | `conversation.created {"conversation_id"}` if it opens one; `task.created {"agent_id","task_type"}` with run seq 1 |
    /// | `claim` | `task.claimed {"runtime_id","epoch","attempt"}` |
    /// | `finish` | `task.completed {}`, `task.failed {"code"}` or `task.deferred {"until"}`; plus `usage` as given when there is one |
    /// | `cancel_run` | `task.cancelled {"reason"}` |
    /// | `release` | `task.requeued {"reason":"released"}` |
    /// | lost, expired, timed out | `task.requeued {"reason":"runtime_lost"}` or `task.failed {"code"}` |
    /// | refused with `StaleEpoch` by a worker's call | `task.refused {"task_run_id","call","epoch"}` in the tenant's log only (no run, no run seq); `call` is `progress`, `complete`, `fail`, `release`, `permission`, `ask` or `peer_task` |
    /// | refused with `Ended`, a larger `usage` in `progress` or `finish` by the worker that held the run last | `task.usage {"task_run_id","usage"}` in the tenant's log only (no run, no run seq) |
    /// | a live run whose row cannot be read | `task.failed {"code"}` if the rules can read it, else `task.damaged {"task_run_id"}` in the tenant's log only |
    /// | `leave` | `runtime.offline {"agent_id","runtime_id"}` when it was online |
    /// | `sweep` | per runtime `runtime.offline {"agent_id","runtime_id"}`; then per run as above |
    /// | `create_conversation` | `conversation.created {"conversation_id"}` |
    /// | `add_message` | `message.added {"conversation_id","message_id"}` |
    /// | `delete_run` | `task.deleted {"task_run_id","agent_id"}` in the tenant's log only (no run, no run seq) |
    /// | `delete_conversation` | `task.deleted` for each run, at last `conversation.deleted {"conversation_id"}` |
    /// | `add_artifact` | `artifact.changed {"artifact_id","workspace_id","name","size"}` |
    ///
    /// Members appear in the order shown; optional ones that are absent are `null`. `at` is the call's time. The actor is the
    /// context's; without a context it is `runtime:<id>` of the runtime that calls, and `system` for tenants and sweeps. A row whose
    /// type starts with `task.` and that belongs to a run carries the run's id and its next run seq. When a run's stream is
    /// read, `data` of its `task.completed`, `task.failed` and `task.cancelled` gains the run's result as a first member
    /// `"output"` (the log itself does not repeat it).
    pub trait Store: ChannelStore + WorkerRequestStore + UserStore + QuotaStore + DeliveryStore + PeerStore + PushStore
        + DelegationStore + NotificationStore + NodeStore + SharedValueStore + WorktreeStore + Debug, layer StoreLayer, call StoreCall {
        /// Succeeds if the store can write and read: something was flushed to disk a moment ago, or is now. Not logged.
        async fn ping(&self) -> Result<()>;

        /// Finishes accepted work and closes. Later calls fail with `Internal`.
        async fn close(&self);

        // --- tenants

        /// The oldest tenant, or a new one with this id. Returns its id.
        async fn ensure_tenant(&self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId>;

        // --- agent accounts

        /// `NameTaken` if an account of the tenant that is not archived has the name, and `NameReserved` if the account that
        /// had it last, before it was archived or renamed, was not of the context's user, unless `archived_names` allows that.
        async fn create_account(&self, context: WriteContext, account: NewAccount) -> Result<AccountRecord>;

        /// Errors, in this order: `AgentArchived`, `NameTaken` and `NameReserved` as above, `NotFound` for the owner. A patch without changes is logged
        /// like any other. If a private agent gets shared, or another owner, [`AccountRecord::private_until`] is the context's
        /// time.
        async fn update_account(
            &self,
            context: WriteContext,
            agent: AgentRef,
            patch: AccountPatch,
        ) -> Result<AccountRecord>;

        /// Revokes its runtime, cancels its live runs, keeps its name for its user. Archiving again changes nothing.
        async fn archive_account(&self, context: WriteContext, agent: AgentRef) -> Result<AccountRecord>;

        /// By name, only accounts that aren't archived are found.
        async fn account(&self, tenant: TenantId, agent: AgentRef) -> Result<AccountRecord>;

        /// The owner of the account that had this name last, before it was archived or renamed. `None` if none had it.
        async fn last_owner_of(&self, tenant: TenantId, name: &str) -> Result<Option<Option<UserId>>>;

        /// Accounts that aren't archived, by name ascending, in byte order.
        async fn accounts(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<AccountRecord>>;

        // --- pairing

        /// `AgentArchived` for an archived agent.
        async fn create_pairing_code(&self, context: WriteContext, code: NewPairingCode) -> Result<()>;

        /// Not logged: it belongs to no tenant until a person confirms it.
        async fn request_pairing(&self, request: NewPairingRequest, at: Timestamp) -> Result<()>;

        /// A request that waits for a decision. `PairingInvalid`, without an agent, if unknown, expired or decided.
        async fn pairing_request(&self, code: SecretHash, at: Timestamp) -> Result<PairingRequest>;

        /// The target of this proof, and who created the code or confirmed the device. Same errors for the proof as
        /// `attach_runtime`.
        async fn pairing(&self, proof: PairingProof, at: Timestamp) -> Result<Pairing>;

        /// Errors, in this order: `PairingInvalid` as above, then `NotFound` or `AgentArchived` for the agent.
        async fn decide_pairing(&self, context: WriteContext, code: SecretHash, decision: PairingDecision) -> Result<()>;

        /// Uses up the code and makes the runtime the agent's active one. The log's actor is `runtime:<new id>`. Errors, in
        /// this order: `PairingInvalid` (unknown, used or expired, whatever was decided), `PairingRejected`,
        /// `PairingPending`, `AgentArchived`, `IsPeer`; with [`crate::record::PairingProof::Owner`] only `NotFound` and
        /// `AgentArchived`. The code stays usable after an error. `agent` of `PairingInvalid` is the code's agent, or the
        /// one the request was confirmed for. The runtime is offline until its first heartbeat.
        async fn attach_runtime(&self, runtime: NewRuntime, at: Timestamp) -> Result<RuntimeRecord>;

        // --- runtimes

        async fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<RuntimeRecord>;

        /// Active and ended ones, newest first.
        async fn runtimes(
            &self,
            tenant: TenantId,
            agent: Option<AgentId>,
            page: Pagination,
        ) -> Result<ListPage<RuntimeRecord>>;

        /// Fences the runtime, which goes offline without a row of its own, and its claims are lost. Revoking an ended one
        /// changes nothing.
        async fn revoke_runtime(&self, context: WriteContext, runtime: RuntimeId) -> Result<RuntimeRecord>;

        /// Rotates the runtime's token. `RuntimeEnded` if it isn't active.
        async fn change_token(&self, runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<RuntimeRecord>;

        /// The runtime signed off: it is offline until its next sign of life, and keeps its claims until their leases end.
        /// `RuntimeEnded` if it isn't active.
        async fn disconnect_runtime(&self, runtime: RuntimeId, at: Timestamp) -> Result<()>;

        /// Marks the runtime online. With `running`, renews the named claims and loses the unnamed ones older than the
        /// grace; without, renews every claim. `RuntimeEnded` if it isn't active. `not_held` keeps the order of naming.
        async fn heartbeat(
            &self,
            runtime: RuntimeId,
            running: Option<Vec<RunId>>,
            leases: LeaseTimes,
            at: Timestamp,
        ) -> Result<HeartbeatResult>;

        /// Renews every claim. A hub that was down couldn't receive heartbeats, so its downtime doesn't count against
        /// devices. Not logged.
        async fn renew_claims(&self, lease: Duration, at: Timestamp) -> Result<()>;

        // --- credentials

        /// The credential behind this secret, even if revoked, expired or ended: the caller decides how to respond.
        async fn credential(&self, secret: SecretHash) -> Result<Option<StoredCredential>>;

        /// `NotFound` for an unknown or removed user, then for a passkey that isn't theirs, then for an opener that is unknown,
        /// revoked or expired. Its role
        /// never exceeds the user's. A session expires no later than its opener.
        async fn create_key(&self, context: WriteContext, key: NewKey) -> Result<KeyRecord>;

        /// Includes the sessions it opened. Revoking again changes nothing.
        async fn revoke_key(&self, context: WriteContext, key: KeyId) -> Result<KeyRecord>;

        /// API keys, or sessions, newest first; of one user only if one is given.
        async fn keys(
            &self,
            tenant: TenantId,
            kind: KeyKind,
            user: Option<UserId>,
            page: Pagination,
        ) -> Result<ListPage<KeyRecord>>;

        // --- runs

        /// An idempotency key stands for the newest run that was made with it in the tenant, until 24 hours after that run's
        /// creation by the clock of [`Store::advance_clock`]: the same request answers that run, another one is `KeyReused`, any
        /// is `RunDeleted` if somebody deleted it. The key is looked at first; then
        /// `NotFound` or `AgentArchived` for the agent, `NotFound` for the conversation (made explicitly, or a run's own), for
        /// the parent, for the follower's channel if it is unknown or was superseded, and for the approval; `ApprovalUsed` if
        /// that started a run before. The same request again over another
        /// channel of the principal that follows the run moves the follow there, from the run's first event on.
        async fn create_run(&self, context: WriteContext, run: NewRun) -> Result<RunCreation>;

        /// The pending run of the runtime's agent with the highest priority, the oldest first among equals; expired ones are
        /// passed over. `RuntimeEnded` if the runtime is not active.
        /// `via` is the channel over which the claim is handed over (`NotFound` unless it is a connected one of the
        /// runtime and this its newest connection).
        /// A run that asks for a limit which is not among those that the worker `enforces` is never claimed: it ends as one
        /// without room under its quotas does, with the code `refused` and `Sandbox::unmet` in the words of its result, and
        /// the next one is chosen.
        async fn claim(
            &self,
            runtime: RuntimeId,
            via: Option<ChannelConnection>,
            enforces: Vec<SandboxLimit>,
            lease: Duration,
            at: Timestamp,
        ) -> Result<Option<ClaimedRunRecord>>;

        /// Appends to the run's stream and renews the claim. `usage` replaces the run's total. A report with the same source
        /// as the claim's newest and no higher seq was heard before: it renews the claim and changes nothing else. Here, in
        /// `finish` and in `release` a run that is not of the worker's own agent is `NotFound`, and so is every run to an
        /// unknown runtime; beyond that the rules judge the worker, also when its runtime has ended.
        async fn progress(
            &self,
            by: WorkerRef,
            run: RunId,
            progress: NewProgress,
            lease: Duration,
            at: Timestamp,
        ) -> Result<RunStatus>;

        /// Ends the run. Repeating the same outcome is answered and changes nothing. If the rules allow it,
        /// `ForeignArtifact` for the first artifact that is not of the run's workspace; named artifacts become produced by the
        /// run, also if another run named them before. `usage` replaces the run's total.
        ///
        /// `inputs_taken` says which unsolicited input the agent got. The row of the end lists all other such input of the run as
        /// `undelivered_inputs`, oldest first, unless there is none. `None`: nothing is known about it.
        ///
        /// A run that somebody else ended (cancelled, out of budget, timed out) has still used what it used: where this or
        /// `progress` is refused with `Ended`, the last worker's `usage` becomes the run's total if `Used::grew_from` says so,
        /// and the accounts follow. The refusal stands.
        async fn finish(
            &self,
            by: WorkerRef,
            run: RunId,
            outcome: RunResult,
            usage: Option<Json>,
            inputs_taken: Option<Vec<InputId>>,
            at: Timestamp,
        ) -> Result<RunStatus>;

        /// The result becomes `{"error":"cancelled"|reason,"code":"cancelled"}`. Cancelling again changes nothing.
        async fn cancel_run(&self, context: WriteContext, run: RunId, reason: Option<String>) -> Result<RunRecord>;

        /// Back to the queue, without counting the attempt. Refused with `Begun` once anything was reported for the claim.
        async fn release(&self, by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord>;

        /// `agent_name` is the agent's current name.
        async fn run(&self, tenant: TenantId, run: RunId) -> Result<RunRecord>;

        /// Newest first, with as much of each run as the filter says.
        async fn runs(&self, tenant: TenantId, filter: RunFilter, page: Pagination) -> Result<ListPage<RunRecord>>;

        /// Runs as A2A lists them: by [`RunRecord::status_at`], latest first, then newest first.
        async fn tasks(&self, tenant: TenantId, filter: TaskFilter, page: Pagination) -> Result<TaskPage>;

        /// Counts of live runs and waiting items.
        async fn live(&self, tenant: TenantId) -> Result<LiveCounts>;

        /// Marks active runtimes without a heartbeat for `silence` offline, then applies every deadline that has passed, once
        /// per run, then lets questions expire (see [`WorkerRequestStore`]). If that ends a wait, the next sweep looks at the time-out.
        async fn sweep(&self, silence: Duration, at: Timestamp) -> Result<SweepResult>;

        /// Advances the clock for expiry towards `at`, by no more than `step`, as
        /// [`attache_protocol::rules::retention::clock`] says. Returns its time. Not logged.
        async fn advance_clock(&self, step: Duration, at: Timestamp) -> Result<Timestamp>;

        /// The time of that clock. `None` before it was advanced for the first time.
        async fn clock(&self) -> Result<Option<Timestamp>>;

        /// Logged as `log.removed {"through","hash"}` in every tenant whose log it cuts, after the cut: what is missing from the
        /// front of a log is explained by the newest such row. A run's floor is the highest of: its newest seq less one once its chunks were due, whether or not there
        /// were any; and the highest run seq of its rows that were removed from the log. Then what is old of every
        /// [`crate::record::Class`] is removed, logged as `data.removed {"class","count"}` by `system`, once for every 200 things
        /// and each tenant that they were of.
        async fn retain(&self, retention: RetentionLimits) -> Result<RetentionResult>;

        /// Deletes a run that has ended, as described in [`crate::record::Class::Runs`]. Its idempotency key stays taken
        /// for as long as it is remembered (`RunDeleted`). `InUse` for one that can't be deleted yet.
        async fn delete_run(&self, context: WriteContext, run: RunId) -> Result<RetentionResult>;

        /// Deletes a conversation, explicit or a run's own, with everything in it: its runs like `delete_run`, in order of
        /// creation, the one that owns it last. `InUse` if one of them can't be deleted; then nothing is. With many runs
        /// some are left: call again while `more` is true.
        async fn delete_conversation(&self, context: WriteContext, conversation: ConversationId)
        -> Result<RetentionResult>;

        /// The blobs among these that no artifact has.
        async fn unused_blobs(&self, blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>>;

        // --- streams

        /// Events after `after` and above the floor, in order: up to `limit`, and as many as fit on a page
        /// ([`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES)).
        async fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents>;

        /// The events above the floor and up to `upto` that show the run's state: lifecycle events, artifacts, chunks and
        /// progress, but not transient thoughts, log lines and tool calls. Of each kind, at most the newest that fit on a
        /// page; chunks and progress only from among the newest events of any kind.
        async fn run_outline(&self, tenant: TenantId, run: RunId, upto: i64, shown: OutlineScope) -> Result<RunOutline>;

        /// The events of the run's output (chunks, thoughts, log lines, tool calls and progress, as far as retention left them)
        /// whose text contains the words, which are in lowercase, oldest first. A text that consecutive chunks or thoughts
        /// make up is searched as one; a match belongs to the event that it ends in.
        async fn output_matches(&self, tenant: TenantId, run: RunId, words: &str, limit: usize) -> Result<OutputMatches>;

        /// Rows after `after` that retention left, in order, as many as fit on a page.
        async fn log(&self, tenant: TenantId, after: i64, limit: usize) -> Result<LogPage>;

        // --- conversations, messages, artifacts

        async fn create_conversation(
            &self,
            context: WriteContext,
            conversation: NewConversation,
        ) -> Result<ConversationRecord>;

        /// Also works for a run's own conversation (title and metadata are null, created with the run).
        async fn conversation(&self, tenant: TenantId, conversation: ConversationId) -> Result<ConversationRecord>;

        /// Only explicitly created conversations, newest first.
        async fn conversations(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<ConversationRecord>>;

        /// Also to a run's own conversation. The author is the context's actor.
        async fn add_message(&self, context: WriteContext, message: NewMessage) -> Result<MessageRecord>;

        /// Oldest first.
        async fn messages(
            &self,
            tenant: TenantId,
            conversation: ConversationId,
            page: Pagination,
        ) -> Result<ListPage<MessageRecord>>;

        /// `NotFound` if the tenant has no such conversation's workspace. Reusing a name creates another artifact.
        async fn add_artifact(&self, context: WriteContext, artifact: NewArtifact) -> Result<ArtifactRecord>;

        async fn artifact(&self, tenant: TenantId, artifact: ArtifactId) -> Result<ArtifactRecord>;

        /// Newest first.
        async fn artifacts(
            &self,
            tenant: TenantId,
            workspace: WorkspaceId,
            page: Pagination,
        ) -> Result<ListPage<ArtifactRecord>>;
    }
    at once {
        fn durability(&self) -> Durability;

        /// The engine's name and version, for people.
        fn engine(&self) -> String;

        /// The engine's metrics, if it has any.
        fn measures(&self) -> Option<&StoreMetrics>;

        /// Registers the single listener for hints, those of other nodes included as far as they arrive. Called once, before
        /// the first write.
        fn on_wake(&self, listener: WakeListener);

        /// Why nothing can be written, according to the latest attempt. The store retries on its own.
        fn fault(&self) -> Option<StorageFault>;
    }
}

// === impl WriteContext ===

impl WriteContext {
    pub const SYSTEM: &'static Actor = &Actor::System;

    pub fn new(tenant: TenantId, actor: impl Into<Actor>, at: Timestamp) -> Self {
        Self { tenant, actor: actor.into(), user: None, at }
    }

    #[must_use]
    pub fn for_user(self, user: Option<UserId>) -> Self {
        Self { user, ..self }
    }
}

// === impl Durability ===

impl Durability {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PowerLoss => "power_loss",
            Self::Nothing => "nothing",
        }
    }
}
