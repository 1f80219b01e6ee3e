//! A store that counts calls and can hold back answers.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use attache_protocol::{
    AgentId, ArtifactId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId, NodeId,
    NotificationTargetId, PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkerRequestId, WorkspaceId,
    rules::{
        quota::{QuotaBudget, QuotaLimits, UtcDay},
        run::{RunStatus, WorkerRef},
    },
    secret::SecretHash,
    wire::{notification::NotificationChoices, run::SandboxLimit, worktree::WorktreeOutcome},
};
use attache_store::{
    ChannelStore, DelegationStore, DeliveryStore, Durability, NodeStore, NotificationStore, PeerStore, PushStore,
    QuotaStore, Result, SharedValueStore, StorageFault, Store, UserStore, WakeListener, WorkerRequestStore,
    WorktreeStore, WriteContext,
    record::{
        channel::*, delegation::*, delivery::*, node::*, notification::*, peer::*, push::*, quota::*, shared_value::*,
        task::*, user::*, worker_request::*, worktree::*, *,
    },
};
use tokio::sync::watch;

#[derive(Debug)]
pub struct Counting {
    inner: Arc<dyn Store>,
    calls: Mutex<HashMap<&'static str, usize>>,
    held: Mutex<HashMap<&'static str, watch::Receiver<()>>>,
}

// === impl Counting ===

impl Counting {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: Mutex::default(), held: Mutex::default() }
    }

    /// How often a method was called so far.
    pub fn calls(&self, method: &str) -> usize {
        self.calls.lock().unwrap().get(method).copied().unwrap_or(0)
    }

    /// From now on, a method's answers are held back until the returned guard is dropped. Its work is still done.
    pub fn hold(&self, method: &'static str) -> watch::Sender<()> {
        let (release, held) = watch::channel(());
        self.held.lock().unwrap().insert(method, held);
        release
    }

    async fn pass(&self, method: &'static str) {
        let held = self.held.lock().unwrap().get(method).cloned();
        if let Some(mut held) = held {
            while held.changed().await.is_ok() {}
        }
    }

    fn count(&self, method: &'static str) {
        *self.calls.lock().unwrap().entry(method).or_default() += 1;
    }
}

/// Implements a trait by counting and delegating to the inner store.
macro_rules! counted {
    (
        $trait:ident
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*
        ---
        $($own:tt)*
    ) => {
        #[async_trait]
        impl $trait for Counting {
            $(async fn $name(&self, $($argument: $type),*) -> $answer {
                self.count(stringify!($name));
                let answer = self.inner.$name($($argument),*).await;
                self.pass(stringify!($name)).await;
                answer
            })*
            $($own)*
        }
    };
}

counted! {
    Store
    fn ping() -> Result<()>;
    fn close() -> ();
    fn ensure_tenant(id: TenantId, name: &str, at: Timestamp) -> Result<TenantId>;
    fn create_account(context: WriteContext, account: NewAccount) -> Result<AccountRecord>;
    fn update_account(context: WriteContext, agent: AgentRef, patch: AccountPatch) -> Result<AccountRecord>;
    fn archive_account(context: WriteContext, agent: AgentRef) -> Result<AccountRecord>;
    fn account(tenant: TenantId, agent: AgentRef) -> Result<AccountRecord>;
    fn last_owner_of(tenant: TenantId, name: &str) -> Result<Option<Option<UserId>>>;
    fn accounts(tenant: TenantId, page: Pagination) -> Result<ListPage<AccountRecord>>;
    fn create_pairing_code(context: WriteContext, code: NewPairingCode) -> Result<()>;
    fn request_pairing(request: NewPairingRequest, at: Timestamp) -> Result<()>;
    fn pairing_request(code: SecretHash, at: Timestamp) -> Result<PairingRequest>;
    fn pairing(proof: PairingProof, at: Timestamp) -> Result<Pairing>;
    fn decide_pairing(context: WriteContext, code: SecretHash, decision: PairingDecision) -> Result<()>;
    fn attach_runtime(runtime: NewRuntime, at: Timestamp) -> Result<RuntimeRecord>;
    fn runtime(tenant: TenantId, runtime: RuntimeId) -> Result<RuntimeRecord>;
    fn runtimes(tenant: TenantId, agent: Option<AgentId>, page: Pagination) -> Result<ListPage<RuntimeRecord>>;
    fn revoke_runtime(context: WriteContext, runtime: RuntimeId) -> Result<RuntimeRecord>;
    fn change_token(runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<RuntimeRecord>;
    fn disconnect_runtime(runtime: RuntimeId, at: Timestamp) -> Result<()>;
    fn heartbeat(runtime: RuntimeId, running: Option<Vec<RunId>>, leases: LeaseTimes, at: Timestamp) -> Result<HeartbeatResult>;
    fn renew_claims(lease: Duration, at: Timestamp) -> Result<()>;
    fn credential(secret: SecretHash) -> Result<Option<StoredCredential>>;
    fn create_key(context: WriteContext, key: NewKey) -> Result<KeyRecord>;
    fn revoke_key(context: WriteContext, key: KeyId) -> Result<KeyRecord>;
    fn keys(tenant: TenantId, kind: KeyKind, user: Option<UserId>, page: Pagination) -> Result<ListPage<KeyRecord>>;
    fn create_run(context: WriteContext, run: NewRun) -> Result<RunCreation>;
    fn claim(runtime: RuntimeId, via: Option<ChannelConnection>, enforces: Vec<SandboxLimit>, lease: Duration, at: Timestamp) -> Result<Option<ClaimedRunRecord>>;
    fn progress(by: WorkerRef, run: RunId, progress: NewProgress, lease: Duration, at: Timestamp) -> Result<RunStatus>;
    fn finish(by: WorkerRef, run: RunId, outcome: RunResult, usage: Option<Json>, inputs_taken: Option<Vec<InputId>>, at: Timestamp) -> Result<RunStatus>;
    fn cancel_run(context: WriteContext, run: RunId, reason: Option<String>) -> Result<RunRecord>;
    fn release(by: WorkerRef, run: RunId, at: Timestamp) -> Result<RunRecord>;
    fn run(tenant: TenantId, run: RunId) -> Result<RunRecord>;
    fn runs(tenant: TenantId, filter: RunFilter, page: Pagination) -> Result<ListPage<RunRecord>>;
    fn tasks(tenant: TenantId, filter: TaskFilter, page: Pagination) -> Result<TaskPage>;
    fn live(tenant: TenantId) -> Result<LiveCounts>;
    fn sweep(silence: Duration, at: Timestamp) -> Result<SweepResult>;
    fn advance_clock(step: Duration, at: Timestamp) -> Result<Timestamp>;
    fn clock() -> Result<Option<Timestamp>>;
    fn retain(retention: RetentionLimits) -> Result<RetentionResult>;
    fn delete_run(context: WriteContext, run: RunId) -> Result<RetentionResult>;
    fn delete_conversation(context: WriteContext, conversation: ConversationId) -> Result<RetentionResult>;
    fn unused_blobs(blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>>;
    fn run_events(tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents>;
    fn run_outline(tenant: TenantId, run: RunId, upto: i64, shown: OutlineScope) -> Result<RunOutline>;
    fn output_matches(tenant: TenantId, run: RunId, words: &str, limit: usize) -> Result<OutputMatches>;
    fn log(tenant: TenantId, after: i64, limit: usize) -> Result<LogPage>;
    fn create_conversation(context: WriteContext, conversation: NewConversation) -> Result<ConversationRecord>;
    fn conversation(tenant: TenantId, conversation: ConversationId) -> Result<ConversationRecord>;
    fn conversations(tenant: TenantId, page: Pagination) -> Result<ListPage<ConversationRecord>>;
    fn add_message(context: WriteContext, message: NewMessage) -> Result<MessageRecord>;
    fn messages(tenant: TenantId, conversation: ConversationId, page: Pagination) -> Result<ListPage<MessageRecord>>;
    fn add_artifact(context: WriteContext, artifact: NewArtifact) -> Result<ArtifactRecord>;
    fn artifact(tenant: TenantId, artifact: ArtifactId) -> Result<ArtifactRecord>;
    fn artifacts(tenant: TenantId, workspace: WorkspaceId, page: Pagination) -> Result<ListPage<ArtifactRecord>>;
    ---
    fn fault(&self) -> Option<StorageFault> {
        self.inner.fault()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn engine(&self) -> String {
        self.inner.engine()
    }

    fn on_wake(&self, listener: WakeListener) {
        self.inner.on_wake(listener);
    }
}

counted! {
    ChannelStore
    fn open_channel(context: WriteContext, channel: NewChannel) -> Result<ChannelRecord>;
    fn resume_channel(context: WriteContext, resume: ChannelResume) -> Result<ChannelResumption>;
    fn close_channel(context: WriteContext, channel: ChannelId, reason: &str) -> Result<ChannelRecord>;
    fn close_connection(context: WriteContext, connection: ChannelConnection, reason: &str) -> Result<bool>;
    fn close_channels(reason: &str, at: Timestamp) -> Result<()>;
    fn mark_channels_seen(connections: Vec<ChannelConnection>, lease: Duration, at: Timestamp) -> Result<()>;
    fn channel_message(context: WriteContext, channel: ChannelId, message: Json) -> Result<()>;
    fn channel(tenant: TenantId, channel: ChannelId) -> Result<ChannelRecord>;
    fn channels(tenant: TenantId, filter: ChannelFilter, page: Pagination) -> Result<ListPage<ChannelRecord>>;
    fn channel_events(tenant: TenantId, channel: ChannelId, after: i64, limit: usize) -> Result<ChannelEvents>;
    fn frames(channel: ChannelId, after: i64, limit: usize) -> Result<OutboxFrames>;
    fn acknowledge(connection: ChannelConnection, seq: i64) -> Result<()>;
    fn follows(channel: ChannelId) -> Result<Vec<FollowRecord>>;
    fn follower(run: RunId) -> Result<Option<FollowRecord>>;
    fn push_events(connection: ChannelConnection, run: RunId, upto: i64, limit: usize) -> Result<FollowRecord>;
    ---
}

counted! {
    NodeStore
    fn start_node(node: NodeId) -> Result<()>;
    fn beat_node(node: NodeId) -> Result<Vec<NodeRecord>>;
    fn end_node(node: NodeRecord, reason: &str, at: Timestamp) -> Result<bool>;
    fn lease_deliveries(node: NodeId, attempts: Vec<(DeliveryId, i64)>) -> Result<Vec<DeliveryId>>;
    fn lease(node: NodeId, name: &str) -> Result<bool>;
    fn release_lease(node: NodeId, name: &str) -> Result<()>;
    ---
}

counted! {
    SharedValueStore
    fn keep_value(value: SharedValue, limit: SharedValueLimit, at: Timestamp) -> Result<bool>;
    fn shared_value(kind: SharedValueKind, name: &str, at: Timestamp) -> Result<Option<SharedValue>>;
    fn shared_values(kind: SharedValueKind, at: Timestamp) -> Result<Vec<SharedValue>>;
    fn value_holders(kind: SharedValueKind, at: Timestamp) -> Result<Vec<(TenantId, String)>>;
    fn take_value(kind: SharedValueKind, name: &str, until: Timestamp, at: Timestamp) -> Result<Option<SharedValue>>;
    fn drop_values(kind: SharedValueKind, tenant: TenantId, holder: &str) -> Result<()>;
    ---
}

counted! {
    WorkerRequestStore
    fn request_permission(by: WorkerRef, permission: NewPermission, lease: Duration, at: Timestamp) -> Result<PermissionRecord>;
    fn decide_permission(context: WriteContext, permission: PermissionId, decision: NewDecision) -> Result<PermissionRecord>;
    fn permission(tenant: TenantId, permission: PermissionId) -> Result<PermissionRecord>;
    fn permissions(tenant: TenantId, filter: PermissionFilter, page: Pagination) -> Result<ListPage<PermissionRecord>>;
    fn pending_permissions(tenant: TenantId) -> Result<u64>;
    fn grants(tenant: TenantId, page: Pagination) -> Result<ListPage<GrantRecord>>;
    fn revoke_grant(context: WriteContext, grant: GrantId) -> Result<GrantRecord>;
    fn create_worker_request(by: WorkerRef, ask: NewWorkerRequest, lease: Duration, at: Timestamp) -> Result<WorkerRequestRecord>;
    fn withdraw_worker_request(by: WorkerRef, run: RunId, ask: WorkerRequestId, lease: Duration, at: Timestamp) -> Result<WorkerRequestRecord>;
    fn worker_request(tenant: TenantId, ask: WorkerRequestId) -> Result<WorkerRequestRecord>;
    fn open_worker_request(tenant: TenantId, run: RunId) -> Result<Option<WorkerRequestRecord>>;
    fn answer_tool_call(context: WriteContext, ask: WorkerRequestId, reply: Json) -> Result<WorkerRequestRecord>;
    fn add_input(context: WriteContext, input: NewInput) -> Result<InputRecord>;
    fn input(run: RunId, input: InputId) -> Result<InputRecord>;
    ---
}

counted! {
    UserStore
    fn create_user(context: WriteContext, user: NewUser) -> Result<UserRecord>;
    fn update_user(context: WriteContext, user: UserRef, patch: UserPatch, keep: Option<KeyId>) -> Result<UserRecord>;
    fn remove_user(context: WriteContext, user: UserRef) -> Result<UserRecord>;
    fn user(tenant: TenantId, user: UserRef) -> Result<UserRecord>;
    fn users(tenant: TenantId, page: Pagination) -> Result<ListPage<UserRecord>>;
    fn save_view(tenant: TenantId, user: UserId, view: SavedView) -> Result<()>;
    fn remove_view(tenant: TenantId, user: UserId, name: &str) -> Result<()>;
    fn saved_views(tenant: TenantId, user: UserId) -> Result<Vec<SavedView>>;
    fn key_credential(key: KeyId) -> Result<Option<StoredCredential>>;
    fn record_event(context: WriteContext, event: AuditEvent) -> Result<()>;
    fn access_rules(tenant: TenantId) -> Result<Option<AccessRulesRecord>>;
    fn set_access_rules(context: WriteContext, text: String, expected: Option<i64>) -> Result<AccessRulesRecord>;
    ---
}

counted! {
    QuotaStore
    fn set_quota(context: WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord>;
    fn remove_quota(context: WriteContext, target: QuotaTarget) -> Result<()>;
    fn quotas(tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>>;
    fn left(tenant: TenantId, run: RunId) -> Result<QuotaBudget>;
    fn usage(tenant: TenantId, first: UtcDay, last: UtcDay) -> Result<Vec<DailyUsage>>;
    ---
}

counted! {
    DeliveryStore
    fn due_deliveries(node: Option<NodeId>, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>>;
    fn record_attempt(delivery: DeliveryId, number: i64, attempt: DeliveryAttempt, next: AttemptDecision) -> Result<DeliveryRecord>;
    fn resend_delivery(context: WriteContext, delivery: DeliveryId) -> Result<DeliveryRecord>;
    fn delivery(tenant: TenantId, delivery: DeliveryId) -> Result<DeliveryRecord>;
    fn deliveries(tenant: TenantId, filter: DeliveryFilter, page: Pagination) -> Result<ListPage<DeliveryRecord>>;
    ---
}

counted! {
    WorktreeStore
    fn decide_worktree(context: WriteContext, decision: NewWorktreeDecision) -> Result<WorktreeDecisionRecord>;
    fn settle_worktree(runtime: RuntimeId, run: RunId, number: i64, outcome: WorktreeOutcome, at: Timestamp) -> Result<WorktreeDecisionRecord>;
    fn worktree_decision(tenant: TenantId, run: RunId) -> Result<Option<WorktreeDecisionRecord>>;
    fn pending_worktrees(agent: AgentId, at: Timestamp) -> Result<Vec<WorktreeDecisionRecord>>;
    ---
}

counted! {
    PeerStore
    fn set_peer(context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord>;
    fn peer(tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>>;
    fn peers() -> Result<Vec<(TenantId, PeerRecord)>>;
    fn pin_card(context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord>;
    fn offer_card(context: WriteContext, agent: AgentId, url: &str, card: PinnedCard, problem: &str) -> Result<PeerRecord>;
    fn trust_card(context: WriteContext, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord>;
    fn note_peer(agent: AgentId, problem: Option<String>) -> Result<()>;
    fn begin_peer_task(by: WorkerRef, run: RunId, task: NewPeerTask, lease: Duration, at: Timestamp) -> Result<PeerTask>;
    fn link_peer_task(
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp
    ) -> Result<PeerTask>;
    fn peer_task(tenant: TenantId, run: RunId) -> Result<Option<PeerTask>>;
    fn peer_task_by_id(agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>>;
    fn open_peer_tasks(agent: AgentId) -> Result<Vec<PeerTask>>;
    fn declare_extensions(runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord>;
    ---
}

counted! {
    PushStore
    fn set_push_config(context: WriteContext, run: RunId, config: NewPushConfig) -> Result<PushConfigRecord>;
    fn push_config(tenant: TenantId, run: RunId, id: &str) -> Result<PushConfigRecord>;
    fn push_configs(tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>>;
    fn remove_push_config(context: WriteContext, run: RunId, id: &str) -> Result<()>;
    ---
}

counted! {
    DelegationStore
    fn publish_delegation(context: WriteContext, delegation: NewDelegation) -> Result<DelegationRecord>;
    fn delegation(tenant: TenantId, delegation: DelegationId) -> Result<DelegationRecord>;
    fn delegations(tenant: TenantId, filter: DelegationFilter, page: Pagination) -> Result<ListPage<DelegationRecord>>;
    fn cancel_delegation(context: WriteContext, delegation: DelegationId) -> Result<DelegationRecord>;
    ---
}

counted! {
    NotificationStore
    fn create_notification_target(context: WriteContext, target: NewNotificationTarget) -> Result<NotificationTargetRecord>;
    fn update_notification_target(context: WriteContext, target: NotificationTargetId, choices: NotificationChoices) -> Result<NotificationTargetRecord>;
    fn remove_notification_target(context: WriteContext, target: NotificationTargetId) -> Result<()>;
    fn notification_target(tenant: TenantId, target: NotificationTargetId) -> Result<NotificationTargetRecord>;
    fn notification_targets(tenant: TenantId) -> Result<Vec<NotificationTargetRecord>>;
    fn add_notifications(context: WriteContext, run: RunId, seq: i64, targets: Vec<NotificationTargetId>) -> Result<usize>;
    fn last_notified(tenant: TenantId) -> Result<Option<i64>>;
    ---
}
