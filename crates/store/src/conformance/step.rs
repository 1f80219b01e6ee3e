//! The steps of a sequence: every write and every read of [`crate::Store`], with its arguments.

use std::time::Duration;

use attache_protocol::{
    AgentId, ArtifactId, ChannelId, ConversationId, DelegationId, DeliveryId, GrantId, InputId, Json, KeyId, NodeId,
    NotificationTargetId, PasskeyId, PermissionId, RunId, RuntimeId, TenantId, Timestamp, UserId, WorkerRequestId,
    WorkspaceId,
    rules::{
        quota::{QuotaLimits, UtcDay},
        run::WorkerRef,
    },
    secret::SecretHash,
    wire::{notification::NotificationChoices, run::SandboxLimit, worktree::WorktreeOutcome},
};

use crate::{
    WriteContext,
    record::{
        AccountPatch, AgentRef, AuditEvent, KeyKind, LeaseTimes, NewAccount, NewArtifact, NewConversation, NewEvent,
        NewKey, NewMessage, NewPairingCode, NewPairingRequest, NewRun, NewRuntime, OutlineScope, PairingDecision,
        PairingProof, RetentionLimits, RunFilter, RunResult, TokenChange,
        channel::{ChannelConnection, ChannelFilter, ChannelResume, NewChannel, ReportKey},
        delegation::{DelegationFilter, DelegationUpdate},
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter},
        node::NodeRecord,
        notification::NewNotificationTarget,
        passkey::NewPasskey,
        peer::{NewPeer, NewPeerTask, PeerTaskChange, PinnedCard},
        push::NewPushConfig,
        quota::QuotaTarget,
        shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
        task::TaskFilter,
        user::{NewUser, UserPatch, UserRef},
        worker_request::{NewDecision, NewInput, NewPermission, NewWorkerRequest, PermissionFilter},
        worktree::NewWorktreeDecision,
    },
};

#[derive(Debug, Clone)]
pub enum StoreStep {
    /// The engine is dropped without being closed, and reopened.
    Crash,
    EnsureTenant {
        id: TenantId,
        name: String,
        at: Timestamp,
    },
    /// Another tenant, which only tests create so far.
    CreateTenant {
        id: TenantId,
        name: String,
        at: Timestamp,
    },

    CreateAccount(WriteContext, NewAccount),
    UpdateAccount(WriteContext, AgentRef, AccountPatch),
    ArchiveAccount(WriteContext, AgentRef),
    Account(TenantId, AgentRef),

    CreatePairingCode(WriteContext, NewPairingCode),
    RequestPairing(NewPairingRequest, Timestamp),
    PairingRequest(SecretHash, Timestamp),
    PairingCode(PairingProof, Timestamp),
    DecidePairing(WriteContext, SecretHash, PairingDecision),
    AttachRuntime(NewRuntime, Timestamp),

    Runtime(TenantId, RuntimeId),
    RevokeRuntime(WriteContext, RuntimeId),
    ChangeToken(RuntimeId, TokenChange, Timestamp),
    Leave(RuntimeId, Timestamp),
    Heartbeat {
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: LeaseTimes,
        at: Timestamp,
    },

    Credential(SecretHash),
    CreateKey(WriteContext, NewKey),
    RevokeKey(WriteContext, KeyId),

    CreateRun(WriteContext, Box<NewRun>),
    Claim {
        runtime: RuntimeId,
        via: Option<ChannelConnection>,
        enforces: Vec<SandboxLimit>,
        lease: Duration,
        at: Timestamp,
    },
    Progress {
        by: WorkerRef,
        run: RunId,
        events: Vec<NewEvent>,
        usage: Option<Json>,
        report: Option<ReportKey>,
        lease: Duration,
        at: Timestamp,
    },
    Finish {
        by: WorkerRef,
        run: RunId,
        outcome: RunResult,
        usage: Option<Json>,
        inputs_taken: Option<Vec<InputId>>,
        at: Timestamp,
    },
    CancelRun(WriteContext, RunId, Option<String>),
    Release {
        by: WorkerRef,
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
    Retain(RetentionLimits),
    DeleteRun(WriteContext, RunId),
    DeleteConversation(WriteContext, ConversationId),
    UnusedBlobs(Vec<[u8; 32]>),

    RunOutline {
        tenant: TenantId,
        run: RunId,
        upto: i64,
        shown: OutlineScope,
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

    CreateConversation(WriteContext, NewConversation),
    Conversation(TenantId, ConversationId),
    AddMessage(WriteContext, NewMessage),
    AddArtifact(WriteContext, NewArtifact),
    Artifact(TenantId, ArtifactId),

    OpenChannel(WriteContext, Box<NewChannel>),
    ResumeChannel(WriteContext, ChannelResume),
    CloseChannel(WriteContext, ChannelId, String),
    CloseConnection(WriteContext, ChannelConnection, String),
    CloseChannels {
        reason: String,
        at: Timestamp,
    },
    SeenChannels {
        connections: Vec<ChannelConnection>,
        lease: Duration,
        at: Timestamp,
    },
    ChannelMessage(WriteContext, ChannelId, Json),
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
        connection: ChannelConnection,
        seq: i64,
    },
    Follows(ChannelId),
    Follower(RunId),
    PushEvents {
        connection: ChannelConnection,
        run: RunId,
        upto: i64,
        limit: usize,
    },

    RequestPermission {
        by: WorkerRef,
        permission: Box<NewPermission>,
        lease: Duration,
        at: Timestamp,
    },
    DecidePermission(WriteContext, PermissionId, NewDecision),
    Permission(TenantId, PermissionId),
    PendingPermissions(TenantId),
    RevokeGrant(WriteContext, GrantId),
    Ask {
        by: WorkerRef,
        ask: NewWorkerRequest,
        lease: Duration,
        at: Timestamp,
    },
    WithdrawAsk {
        by: WorkerRef,
        run: RunId,
        ask: WorkerRequestId,
        lease: Duration,
        at: Timestamp,
    },
    Asked(TenantId, WorkerRequestId),
    OpenAsk(TenantId, RunId),
    AnswerTool(WriteContext, WorkerRequestId, Json),
    AddInput(WriteContext, NewInput),
    Input(RunId, InputId),

    CreateUser(WriteContext, NewUser),
    UpdateUser(WriteContext, UserRef, UserPatch, Option<KeyId>),
    RemoveUser(WriteContext, UserRef),
    User(TenantId, UserRef),
    AddPasskey(WriteContext, NewPasskey),
    Passkey(TenantId, Vec<u8>),
    Passkeys(TenantId, UserId),
    UsePasskey {
        tenant: TenantId,
        passkey: PasskeyId,
        counter: u32,
        at: Timestamp,
    },
    RemovePasskey(WriteContext, UserId, PasskeyId),
    KeyCredential(KeyId),
    AccessRules(TenantId),
    RecordEvent(WriteContext, AuditEvent),
    SetAccessRules(WriteContext, String, Option<i64>),

    SetQuota(WriteContext, QuotaTarget, QuotaLimits),
    RemoveQuota(WriteContext, QuotaTarget),
    Quotas(TenantId, Timestamp),
    Usage {
        tenant: TenantId,
        first: UtcDay,
        last: UtcDay,
    },

    StartNode(NodeId),
    BeatNode(NodeId),
    EndNode {
        node: NodeRecord,
        reason: String,
        at: Timestamp,
    },
    LeaseDeliveries(NodeId, Vec<(DeliveryId, i64)>),
    Lease(NodeId, String),
    ReleaseLease(NodeId, String),

    KeepValue(SharedValue, SharedValueLimit, Timestamp),
    SharedValue(SharedValueKind, String, Timestamp),
    SharedValues(SharedValueKind, Timestamp),
    ValueHolders(SharedValueKind, Timestamp),
    TakeValue {
        kind: SharedValueKind,
        name: String,
        until: Timestamp,
        at: Timestamp,
    },
    DropValues(SharedValueKind, TenantId, String),

    DueDeliveries {
        node: Option<NodeId>,
        at: Timestamp,
        limit: usize,
    },
    RecordAttempt {
        delivery: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    },
    ResendDelivery(WriteContext, DeliveryId),
    Delivery(TenantId, DeliveryId),

    SetPushConfig(WriteContext, RunId, NewPushConfig),
    RemovePushConfig(WriteContext, RunId, String),
    PushConfig(TenantId, RunId, String),
    PushConfigs(TenantId, RunId),

    CreateNotificationTarget(WriteContext, NewNotificationTarget),
    UpdateNotificationTarget(WriteContext, NotificationTargetId, NotificationChoices),
    RemoveNotificationTarget(WriteContext, NotificationTargetId),
    NotificationTarget(TenantId, NotificationTargetId),
    NotificationTargets(TenantId),
    AddNotifications(WriteContext, RunId, i64, Vec<NotificationTargetId>),
    LastNotified(TenantId),

    DecideWorktree(WriteContext, NewWorktreeDecision),
    SettleWorktree(RuntimeId, RunId, i64, WorktreeOutcome, Timestamp),
    WorktreeDecision(TenantId, RunId),
    PendingWorktrees(AgentId, Timestamp),

    SetPeer(WriteContext, AgentRef, NewPeer),
    Peer(TenantId, AgentId),
    Peers,
    PinCard(WriteContext, AgentId, String, PinnedCard),
    OfferCard(WriteContext, AgentId, String, PinnedCard, String),
    TrustCard(WriteContext, AgentRef, Option<[u8; 32]>),
    NotePeer(AgentId, Option<String>),
    BeginPeerTask {
        by: WorkerRef,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    },
    LinkPeerTask {
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    },
    PeerTask(TenantId, RunId),
    PeerTaskById(AgentId, String),
    OpenPeerTasks(AgentId),
    DeclareExtensions(RuntimeId, Option<Json>),

    PublishDelegation(WriteContext, DelegationUpdate),
    CancelDelegation(WriteContext, DelegationId),
    Delegation(TenantId, DelegationId),

    /// Walks a list to its end in pages of this size. Cursors are internal to the engine and aren't compared.
    List {
        tenant: TenantId,
        list: ListToRead,
        limit: usize,
    },
    /// Reads a list with a cursor that no store ever returned.
    WrongCursor {
        tenant: TenantId,
        list: ListToRead,
    },
}

#[derive(Debug, Clone)]
pub enum ListToRead {
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
