//! A store that counts what is asked of it, and keeps answers back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use attache_protocol::{
    AgentId, ArtifactId, AskId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId,
    PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkspaceId,
    rules::{
        quota::{Budget, Day, Limits},
        run::{Status, Worker},
    },
    secret::SecretHash,
    wire::run::Limit,
};
use attache_store::{
    Asks, Channels, Context, Delegations, Deliveries, Durability, Fault, Listener, Peers, People, Pushes, Result,
    Spending, Store,
    record::{ask::*, channel::*, delegation::*, delivery::*, peer::*, people::*, push::*, spending::*, task::*, *},
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

    /// From now on the answers of a method, whose work is done, are kept back until what this returns is dropped.
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

/// Implements a trait by counting and asking the store behind.
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
    fn create_account(context: Context, account: NewAccount) -> Result<Account>;
    fn update_account(context: Context, agent: AgentRef, patch: AccountPatch) -> Result<Account>;
    fn archive_account(context: Context, agent: AgentRef) -> Result<Account>;
    fn account(tenant: TenantId, agent: AgentRef) -> Result<Account>;
    fn accounts(tenant: TenantId, page: Page) -> Result<Listed<Account>>;
    fn create_pairing_code(context: Context, code: NewPairingCode) -> Result<()>;
    fn request_pairing(request: NewPairingRequest, at: Timestamp) -> Result<()>;
    fn pairing_request(code: SecretHash, at: Timestamp) -> Result<PairingRequest>;
    fn pairing(proof: Proof, at: Timestamp) -> Result<Pairing>;
    fn decide_pairing(context: Context, code: SecretHash, decision: PairingDecision) -> Result<()>;
    fn attach_runtime(runtime: NewRuntime, at: Timestamp) -> Result<Runtime>;
    fn runtime(tenant: TenantId, runtime: RuntimeId) -> Result<Runtime>;
    fn runtimes(tenant: TenantId, agent: Option<AgentId>, page: Page) -> Result<Listed<Runtime>>;
    fn revoke_runtime(context: Context, runtime: RuntimeId) -> Result<Runtime>;
    fn change_token(runtime: RuntimeId, change: TokenChange, at: Timestamp) -> Result<Runtime>;
    fn leave(runtime: RuntimeId, at: Timestamp) -> Result<()>;
    fn heartbeat(runtime: RuntimeId, running: Option<Vec<RunId>>, leases: Leases, at: Timestamp) -> Result<Beat>;
    fn renew_claims(lease: Duration, at: Timestamp) -> Result<()>;
    fn credential(secret: SecretHash) -> Result<Option<Credential>>;
    fn create_key(context: Context, key: NewKey) -> Result<Key>;
    fn revoke_key(context: Context, key: KeyId) -> Result<Key>;
    fn keys(tenant: TenantId, kind: KeyKind, user: Option<UserId>, page: Page) -> Result<Listed<Key>>;
    fn create_run(context: Context, run: NewRun) -> Result<Created>;
    fn claim(runtime: RuntimeId, via: Option<ChannelId>, enforces: Vec<Limit>, lease: Duration, at: Timestamp) -> Result<Option<Claimed>>;
    fn progress(by: Worker, run: RunId, progress: NewProgress, lease: Duration, at: Timestamp) -> Result<Status>;
    fn finish(by: Worker, run: RunId, outcome: Outcome, usage: Option<Json>, at: Timestamp) -> Result<Status>;
    fn cancel_run(context: Context, run: RunId, reason: Option<String>) -> Result<RunRecord>;
    fn release(by: Worker, run: RunId, at: Timestamp) -> Result<RunRecord>;
    fn run(tenant: TenantId, run: RunId) -> Result<RunRecord>;
    fn runs(tenant: TenantId, filter: RunFilter, page: Page) -> Result<Listed<RunRecord>>;
    fn tasks(tenant: TenantId, filter: TaskFilter, page: Page) -> Result<TaskListed>;
    fn live(tenant: TenantId) -> Result<Live>;
    fn sweep(silence: Duration, at: Timestamp) -> Result<Swept>;
    fn advance_clock(step: Duration, at: Timestamp) -> Result<Timestamp>;
    fn clock() -> Result<Option<Timestamp>>;
    fn retain(retention: Retention) -> Result<Retained>;
    fn delete_run(context: Context, run: RunId) -> Result<Retained>;
    fn delete_conversation(context: Context, conversation: ConversationId) -> Result<Retained>;
    fn unused_blobs(blobs: Vec<[u8; 32]>) -> Result<Vec<[u8; 32]>>;
    fn run_events(tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents>;
    fn run_outline(tenant: TenantId, run: RunId, upto: i64, shown: Outlined) -> Result<RunOutline>;
    fn log(tenant: TenantId, after: i64, limit: usize) -> Result<LogPage>;
    fn create_conversation(context: Context, conversation: NewConversation) -> Result<Conversation>;
    fn conversation(tenant: TenantId, conversation: ConversationId) -> Result<Conversation>;
    fn conversations(tenant: TenantId, page: Page) -> Result<Listed<Conversation>>;
    fn add_message(context: Context, message: NewMessage) -> Result<Message>;
    fn messages(tenant: TenantId, conversation: ConversationId, page: Page) -> Result<Listed<Message>>;
    fn add_artifact(context: Context, artifact: NewArtifact) -> Result<Artifact>;
    fn artifact(tenant: TenantId, artifact: ArtifactId) -> Result<Artifact>;
    fn artifacts(tenant: TenantId, workspace: WorkspaceId, page: Page) -> Result<Listed<Artifact>>;
    ---
    fn fault(&self) -> Option<Fault> {
        self.inner.fault()
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    fn engine(&self) -> String {
        self.inner.engine()
    }

    fn on_wake(&self, listener: Listener) {
        self.inner.on_wake(listener);
    }
}

counted! {
    Channels
    fn open_channel(context: Context, channel: NewChannel) -> Result<Channel>;
    fn resume_channel(context: Context, resume: Resume) -> Result<Resumed>;
    fn close_channel(context: Context, channel: ChannelId, reason: &str) -> Result<Channel>;
    fn close_channels(reason: &str, at: Timestamp) -> Result<()>;
    fn seen_channels(channels: Vec<ChannelId>, lease: Duration, at: Timestamp) -> Result<()>;
    fn channel_message(context: Context, channel: ChannelId, message: Json) -> Result<()>;
    fn channel(tenant: TenantId, channel: ChannelId) -> Result<Channel>;
    fn channels(tenant: TenantId, filter: ChannelFilter, page: Page) -> Result<Listed<Channel>>;
    fn channel_events(tenant: TenantId, channel: ChannelId, after: i64, limit: usize) -> Result<ChannelEvents>;
    fn frames(channel: ChannelId, after: i64, limit: usize) -> Result<Frames>;
    fn acknowledge(channel: ChannelId, seq: i64) -> Result<()>;
    fn follows(channel: ChannelId) -> Result<Vec<Follow>>;
    fn follower(run: RunId) -> Result<Option<Follow>>;
    fn push_events(channel: ChannelId, run: RunId, upto: i64, limit: usize) -> Result<Follow>;
    ---
}

counted! {
    Asks
    fn request_permission(by: Worker, permission: NewPermission, lease: Duration, at: Timestamp) -> Result<Permission>;
    fn decide_permission(context: Context, permission: PermissionId, decision: NewDecision) -> Result<Permission>;
    fn permission(tenant: TenantId, permission: PermissionId) -> Result<Permission>;
    fn permissions(tenant: TenantId, filter: PermissionFilter, page: Page) -> Result<Listed<Permission>>;
    fn pending_permissions(tenant: TenantId) -> Result<u64>;
    fn grants(tenant: TenantId, page: Page) -> Result<Listed<GrantRecord>>;
    fn revoke_grant(context: Context, grant: GrantId) -> Result<GrantRecord>;
    fn ask(by: Worker, ask: NewAsk, lease: Duration, at: Timestamp) -> Result<Ask>;
    fn withdraw_ask(by: Worker, run: RunId, ask: AskId, lease: Duration, at: Timestamp) -> Result<Ask>;
    fn asked(tenant: TenantId, ask: AskId) -> Result<Ask>;
    fn open_ask(tenant: TenantId, run: RunId) -> Result<Option<Ask>>;
    fn answer_tool(context: Context, ask: AskId, reply: Json) -> Result<Ask>;
    fn add_input(context: Context, input: NewInput) -> Result<Input>;
    fn input(run: RunId, input: InputId) -> Result<Input>;
    ---
}

counted! {
    People
    fn create_user(context: Context, user: NewUser) -> Result<User>;
    fn update_user(context: Context, user: UserRef, patch: UserPatch, keep: Option<KeyId>) -> Result<User>;
    fn remove_user(context: Context, user: UserRef) -> Result<User>;
    fn user(tenant: TenantId, user: UserRef) -> Result<User>;
    fn users(tenant: TenantId, page: Page) -> Result<Listed<User>>;
    fn key_credential(key: KeyId) -> Result<Option<Credential>>;
    fn record_event(context: Context, event: AuditEvent) -> Result<()>;
    fn access_rules(tenant: TenantId) -> Result<Option<AccessRules>>;
    fn set_access_rules(context: Context, text: String, expected: Option<i64>) -> Result<AccessRules>;
    ---
}

counted! {
    Spending
    fn set_quota(context: Context, target: Target, limits: Limits) -> Result<Quota>;
    fn remove_quota(context: Context, target: Target) -> Result<()>;
    fn quotas(tenant: TenantId, at: Timestamp) -> Result<Vec<Quota>>;
    fn left(tenant: TenantId, run: RunId) -> Result<Budget>;
    fn usage(tenant: TenantId, first: Day, last: Day) -> Result<Vec<Usage>>;
    ---
}

counted! {
    Deliveries
    fn due_deliveries(at: Timestamp, limit: usize) -> Result<Vec<Delivery>>;
    fn record_attempt(delivery: DeliveryId, number: i64, attempt: Attempt, next: Next) -> Result<Delivery>;
    fn resend_delivery(context: Context, delivery: DeliveryId) -> Result<Delivery>;
    fn delivery(tenant: TenantId, delivery: DeliveryId) -> Result<Delivery>;
    fn deliveries(tenant: TenantId, filter: DeliveryFilter, page: Page) -> Result<Listed<Delivery>>;
    ---
}

counted! {
    Peers
    fn set_peer(context: Context, agent: AgentRef, peer: NewPeer) -> Result<Peer>;
    fn peer(tenant: TenantId, agent: AgentId) -> Result<Option<Peer>>;
    fn peers() -> Result<Vec<(TenantId, Peer)>>;
    fn pin_card(context: Context, agent: AgentId, url: &str, card: Pin) -> Result<Peer>;
    fn offer_card(context: Context, agent: AgentId, url: &str, card: Pin, problem: &str) -> Result<Peer>;
    fn trust_card(context: Context, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<Peer>;
    fn note_peer(agent: AgentId, problem: Option<String>) -> Result<()>;
    fn begin_peer_task(by: Worker, run: RunId, task: NewPeerTask, lease: Duration, at: Timestamp) -> Result<PeerTask>;
    fn link_peer_task(
        by: Worker,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp
    ) -> Result<PeerTask>;
    fn peer_task(tenant: TenantId, run: RunId) -> Result<Option<PeerTask>>;
    fn peer_task_by_id(agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>>;
    fn open_peer_tasks(agent: AgentId) -> Result<Vec<PeerTask>>;
    fn declare_extensions(runtime: RuntimeId, extensions: Option<Json>) -> Result<Runtime>;
    ---
}

counted! {
    Pushes
    fn set_push_config(context: Context, run: RunId, config: NewPushConfig) -> Result<PushConfig>;
    fn push_config(tenant: TenantId, run: RunId, id: &str) -> Result<PushConfig>;
    fn push_configs(tenant: TenantId, run: RunId) -> Result<Vec<PushConfig>>;
    fn remove_push_config(context: Context, run: RunId, id: &str) -> Result<()>;
    ---
}

counted! {
    Delegations
    fn publish_delegation(context: Context, delegation: NewDelegation) -> Result<Delegation>;
    fn delegation(tenant: TenantId, delegation: DelegationId) -> Result<Delegation>;
    fn delegations(tenant: TenantId, filter: DelegationFilter, page: Page) -> Result<Listed<Delegation>>;
    fn cancel_delegation(context: Context, delegation: DelegationId) -> Result<Delegation>;
    ---
}
