//! The steps of a sequence: every write and every read of [`crate::Store`], with its arguments.

use std::time::Duration;

use attache_protocol::{
    AgentId, ArtifactId, AskId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId,
    PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkspaceId,
    rules::{
        quota::{Day, Limits},
        run::Worker,
    },
    secret::SecretHash,
    wire::run::Limit,
};

use crate::{
    Context,
    record::{
        AccountPatch, AgentRef, AuditEvent, KeyKind, Leases, NewAccount, NewArtifact, NewConversation, NewEvent,
        NewKey, NewMessage, NewPairingCode, NewPairingRequest, NewRun, NewRuntime, Outcome, Outlined, PairingDecision,
        Proof, Retention, RunFilter, TokenChange,
        ask::{NewAsk, NewDecision, NewInput, NewPermission, PermissionFilter},
        channel::{ChannelFilter, NewChannel, Report, Resume},
        delegation::{DelegationFilter, NewDelegation},
        delivery::{Attempt, DeliveryFilter, Next},
        peer::{NewPeer, NewPeerTask, PeerTaskChange, Pin},
        people::{NewUser, UserPatch, UserRef},
        push::NewPushConfig,
        spending::Target,
        task::TaskFilter,
    },
};

#[derive(Debug, Clone)]
pub enum Step {
    /// The engine is dropped without being closed and opened again.
    Crash,
    EnsureTenant {
        id: TenantId,
        name: String,
        at: Timestamp,
    },
    /// One more tenant, which only tests make yet.
    CreateTenant {
        id: TenantId,
        name: String,
        at: Timestamp,
    },

    CreateAccount(Context, NewAccount),
    UpdateAccount(Context, AgentRef, AccountPatch),
    ArchiveAccount(Context, AgentRef),
    Account(TenantId, AgentRef),

    CreatePairingCode(Context, NewPairingCode),
    RequestPairing(NewPairingRequest, Timestamp),
    PairingRequest(SecretHash, Timestamp),
    PairingCode(Proof, Timestamp),
    DecidePairing(Context, SecretHash, PairingDecision),
    AttachRuntime(NewRuntime, Timestamp),

    Runtime(TenantId, RuntimeId),
    RevokeRuntime(Context, RuntimeId),
    ChangeToken(RuntimeId, TokenChange, Timestamp),
    Leave(RuntimeId, Timestamp),
    Heartbeat {
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: Leases,
        at: Timestamp,
    },

    Credential(SecretHash),
    CreateKey(Context, NewKey),
    RevokeKey(Context, KeyId),

    CreateRun(Context, Box<NewRun>),
    Claim {
        runtime: RuntimeId,
        via: Option<ChannelId>,
        enforces: Vec<Limit>,
        lease: Duration,
        at: Timestamp,
    },
    Progress {
        by: Worker,
        run: RunId,
        events: Vec<NewEvent>,
        usage: Option<Json>,
        report: Option<Report>,
        lease: Duration,
        at: Timestamp,
    },
    Finish {
        by: Worker,
        run: RunId,
        outcome: Outcome,
        usage: Option<Json>,
        at: Timestamp,
    },
    CancelRun(Context, RunId, Option<String>),
    Release {
        by: Worker,
        run: RunId,
        at: Timestamp,
    },
    Run(TenantId, RunId),
    Live(TenantId),
    Sweep {
        silence: Duration,
        at: Timestamp,
    },
    AdvanceClock {
        step: Duration,
        at: Timestamp,
    },
    Clock,
    Retain(Retention),
    DeleteRun(Context, RunId),
    DeleteConversation(Context, ConversationId),
    UnusedBlobs(Vec<[u8; 32]>),

    RunOutline {
        tenant: TenantId,
        run: RunId,
        upto: i64,
        shown: Outlined,
    },
    RunEvents {
        tenant: TenantId,
        run: RunId,
        after: i64,
        limit: usize,
    },
    Log {
        tenant: TenantId,
        after: i64,
        limit: usize,
    },

    CreateConversation(Context, NewConversation),
    Conversation(TenantId, ConversationId),
    AddMessage(Context, NewMessage),
    AddArtifact(Context, NewArtifact),
    Artifact(TenantId, ArtifactId),

    OpenChannel(Context, Box<NewChannel>),
    ResumeChannel(Context, Resume),
    CloseChannel(Context, ChannelId, String),
    CloseChannels {
        reason: String,
        at: Timestamp,
    },
    SeenChannels {
        channels: Vec<ChannelId>,
        lease: Duration,
        at: Timestamp,
    },
    ChannelMessage(Context, ChannelId, Json),
    Channel(TenantId, ChannelId),
    ChannelEvents {
        tenant: TenantId,
        channel: ChannelId,
        after: i64,
        limit: usize,
    },
    Frames {
        channel: ChannelId,
        after: i64,
        limit: usize,
    },
    Acknowledge {
        channel: ChannelId,
        seq: i64,
    },
    Follows(ChannelId),
    Follower(RunId),
    PushEvents {
        channel: ChannelId,
        run: RunId,
        upto: i64,
        limit: usize,
    },

    RequestPermission {
        by: Worker,
        permission: Box<NewPermission>,
        lease: Duration,
        at: Timestamp,
    },
    DecidePermission(Context, PermissionId, NewDecision),
    Permission(TenantId, PermissionId),
    PendingPermissions(TenantId),
    RevokeGrant(Context, GrantId),
    Ask {
        by: Worker,
        ask: NewAsk,
        lease: Duration,
        at: Timestamp,
    },
    WithdrawAsk {
        by: Worker,
        run: RunId,
        ask: AskId,
        lease: Duration,
        at: Timestamp,
    },
    Asked(TenantId, AskId),
    OpenAsk(TenantId, RunId),
    AnswerTool(Context, AskId, Json),
    AddInput(Context, NewInput),
    Input(RunId, InputId),

    CreateUser(Context, NewUser),
    UpdateUser(Context, UserRef, UserPatch, Option<KeyId>),
    RemoveUser(Context, UserRef),
    User(TenantId, UserRef),
    KeyCredential(KeyId),
    AccessRules(TenantId),
    RecordEvent(Context, AuditEvent),
    SetAccessRules(Context, String, Option<i64>),

    SetQuota(Context, Target, Limits),
    RemoveQuota(Context, Target),
    Quotas(TenantId, Timestamp),
    Usage {
        tenant: TenantId,
        first: Day,
        last: Day,
    },

    DueDeliveries {
        at: Timestamp,
        limit: usize,
    },
    RecordAttempt {
        delivery: DeliveryId,
        number: i64,
        attempt: Attempt,
        next: Next,
    },
    ResendDelivery(Context, DeliveryId),
    Delivery(TenantId, DeliveryId),

    SetPushConfig(Context, RunId, NewPushConfig),
    RemovePushConfig(Context, RunId, String),
    PushConfig(TenantId, RunId, String),
    PushConfigs(TenantId, RunId),

    SetPeer(Context, AgentRef, NewPeer),
    Peer(TenantId, AgentId),
    Peers,
    PinCard(Context, AgentId, String, Pin),
    OfferCard(Context, AgentId, String, Pin, String),
    TrustCard(Context, AgentRef, Option<[u8; 32]>),
    NotePeer(AgentId, Option<String>),
    BeginPeerTask {
        by: Worker,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    },
    LinkPeerTask {
        by: Worker,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    },
    PeerTask(TenantId, RunId),
    PeerTaskById(AgentId, String),
    OpenPeerTasks(AgentId),
    DeclareExtensions(RuntimeId, Option<Json>),

    PublishDelegation(Context, NewDelegation),
    CancelDelegation(Context, DelegationId),
    Delegation(TenantId, DelegationId),

    /// Walks a list to its end in pages of this size. Cursors are the engine's own business and are not compared.
    List {
        tenant: TenantId,
        list: List,
        limit: usize,
    },
    /// Reads a list from a cursor that no store ever gave out.
    WrongCursor {
        tenant: TenantId,
        list: List,
    },
}

#[derive(Debug, Clone)]
pub enum List {
    Accounts,
    Runtimes(Option<AgentId>),
    Keys(KeyKind, Option<UserId>),
    Runs(RunFilter),
    Conversations,
    Messages(ConversationId),
    Artifacts(WorkspaceId),
    Channels(ChannelFilter),
    Permissions(PermissionFilter),
    Grants,
    Users,
    Deliveries(DeliveryFilter),
    Delegations(DelegationFilter),
    Tasks(TaskFilter),
}
