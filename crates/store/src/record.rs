//! The rows of the store in plain Rust types. The hub turns them into wire types.

mod authors;
pub mod channel;
pub mod delegation;
pub mod delivery;
pub mod key;
pub mod node;
pub mod notification;
pub mod passkey;
pub mod peer;
mod privacy;
pub mod push;
pub mod quota;
pub mod retention;
pub mod shared_value;
pub mod task;
pub mod user;
pub mod worker_request;
pub mod worktree;

use std::{collections::BTreeMap, time::Duration};

use attache_protocol::{
    Actor, AgentId, ArtifactId, ChannelId, ConversationId, EventKind, Json, KeyId, MessageId, PermissionId, RunId,
    RuntimeId, TenantId, Timestamp, UserId, WorkspaceId,
    rules::{
        permission_mode::PermissionMode,
        quota::QuotaBudget,
        run::{FailureCode, RunLifecycle, RunLimits, RunStatus},
    },
    secret::SecretHash,
    wire::{
        account::{AddedPart, ApprovalConfirmation, Callers, OnLimit},
        conversation,
        key::{KeyScope, Role},
        run::Sandbox,
        runtime::RuntimeState,
    },
};

pub use authors::AccountAuthors;
pub use key::{AuditEvent, KeyKind, KeyRecord, NewKey, SessionOpening};
pub use retention::{Class, RetentionLimits, RetentionResult};

/// How an agent is referred to: by id or by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AgentRef {
    Id(AgentId),
    Name(String),
}

impl From<AgentId> for AgentRef {
    fn from(id: AgentId) -> Self {
        Self::Id(id)
    }
}

/// Which names that other accounts had may an account get. Who sends something to a name means the agent that had it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArchivedNames {
    /// Only those whose last account was of the same user.
    #[default]
    Own,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAccount {
    pub id: AgentId,
    pub name: String,
    pub archived_names: ArchivedNames,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// A JSON array of skills.
    pub skills: Json,
    pub a2a: Option<Json>,
    /// How its permission requests time out: an `ApprovalPolicy`.
    pub approvals: Option<Json>,
    /// The person who writes the instructions and approvals, if they do so in person.
    pub author: Option<UserId>,
    pub callers: Callers,
    /// The timeout of its runs, unless their creator sets one.
    pub run_timeout: Option<Duration>,
    pub on_limit: OnLimit,
    pub confirm_approvals: ApprovalConfirmation,
}

/// Changes to an account. `None` leaves a member as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccountPatch {
    pub name: Option<String>,
    pub archived_names: ArchivedNames,
    pub description: Option<String>,
    pub instructions: Option<String>,
    pub skills: Option<Json>,
    pub a2a: Option<Json>,
    pub approvals: Option<Json>,
    /// The person who writes the instructions and approvals, if they do so in person.
    pub author: Option<UserId>,
    /// Assigns the agent to a user (`NotFound` unless known and not removed), or to no one.
    pub owner: Option<Option<UserId>>,
    pub callers: Option<Callers>,
    pub run_timeout: Option<Option<Duration>>,
    pub on_limit: Option<OnLimit>,
    /// Requiring more ends the standing approvals for the agent.
    pub confirm_approvals: Option<ApprovalConfirmation>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRecord {
    pub id: AgentId,
    pub tenant: TenantId,
    pub name: String,
    pub description: Option<String>,
    pub instructions: Option<String>,
    pub skills: Json,
    pub a2a: Option<Json>,
    pub approvals: Option<Json>,
    pub authors: AccountAuthors,
    /// The user who created it, unless it was assigned to another.
    pub owner: Option<UserId>,
    pub callers: Callers,
    /// When it was last shared, or given away while private. Its work from before belongs to those who started it.
    pub private_until: Option<Timestamp>,
    pub run_timeout: Option<Duration>,
    pub on_limit: OnLimit,
    pub confirm_approvals: ApprovalConfirmation,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
    /// The active runtime, if any.
    pub runtime: Option<RuntimeRecord>,
    /// What others had added, if it ended with the update that returns this record.
    pub ended: Vec<AddedPart>,
}

impl AccountRecord {
    /// [`AccountRecord::private_until`] after a change. A private agent's work goes to no one else with the agent.
    pub(crate) fn private_until_after(&self, patch: &AccountPatch, at: Timestamp) -> Option<Timestamp> {
        let is_shared = patch.callers == Some(Callers::Everyone);
        let is_given = patch.owner.is_some_and(|owner| owner != self.owner);
        if self.callers == Callers::Owner && (is_shared || is_given) { Some(at) } else { self.private_until }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeRecord {
    pub id: RuntimeId,
    pub kind: RuntimeKind,
    pub tenant: TenantId,
    pub agent: AgentId,
    pub state: RuntimeState,
    pub online: bool,
    pub device_name: Option<String>,
    pub labels: Json,
    pub attached_at: Timestamp,
    pub last_heartbeat_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// When its token was first rotated after attaching.
    pub token_rotated_at: Option<Timestamp>,
    /// When a token that had been replaced was last used, to the minute.
    pub token_reused_at: Option<Timestamp>,
    /// The extensions it supports: a JSON array of `{"uri","params"?}`.
    pub extensions: Option<Json>,
    /// The user who paired it with a credential of their own. `None` if unknown.
    pub paired_by: Option<UserId>,
}

/// A code for an agent, created by a signed-in person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPairingCode {
    /// The key or session that creates it. The code is valid only as long as that is.
    pub maker: Option<KeyId>,
    pub agent: AgentRef,
    pub code: SecretHash,
    pub expires_at: Timestamp,
}

/// A code shown by a device; a person confirms it for one of their agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPairingRequest {
    pub code: SecretHash,
    pub poll: SecretHash,
    pub device_name: Option<String>,
    pub labels: Json,
    pub address: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairingRequest {
    pub device_name: Option<String>,
    pub labels: Json,
    pub address: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PairingDecision {
    Confirm {
        agent: AgentRef,
        /// The key or session that confirms it.
        maker: Option<KeyId>,
    },
    Reject,
}

/// The target of a redeemable proof, and who authorized it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    pub tenant: TenantId,
    pub agent: AgentId,
    /// `None` if no key was involved.
    pub maker: Option<KeyId>,
}

/// How a device proves that it may become an agent's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairingProof {
    /// The code a person created for an agent.
    Code(SecretHash),
    /// The poll token of a confirmed pairing request.
    Poll(SecretHash),
    /// Someone who may pair the agent requests it directly.
    Owner { tenant: TenantId, agent: AgentId },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRuntime {
    pub id: RuntimeId,
    pub kind: RuntimeKind,
    pub token: SecretHash,
    pub proof: PairingProof,
    /// The user who pairs it, unless someone else issued their credential.
    pub paired_by: Option<UserId>,
    /// With [`PairingProof::Poll`] the request's own name and labels are kept instead.
    pub device_name: Option<String>,
    pub labels: Json,
}

/// How a runtime authenticates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeKind {
    /// A paired device with a runtime token.
    Device,
    /// A registered agent that works over a channel with its own key.
    AgentKey,
    /// A worker in the hub's own process that survives restarts. Its token isn't given to anyone.
    Hub,
}

/// The state of a runtime's token in its rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    Current,
    /// Offered to the runtime, but never used.
    Offered,
    /// Another token was adopted at this time.
    Replaced(Timestamp),
}

/// A step in the rotation of a runtime's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenChange {
    /// Offers this token, replacing an earlier unused offer. Not logged.
    Offer(SecretHash),
    /// The token was used. If it is the offered one it becomes the runtime's token, and the previous one is remembered
    /// as replaced for [`REPLACED_TOKEN_TTL`]. Otherwise nothing changes.
    Adopt(SecretHash),
    /// A replaced token was used. Logged once per [`REUSE_INTERVAL`].
    Reuse,
}

/// How long a replaced token is recognized.
pub const REPLACED_TOKEN_TTL: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How often the use of replaced tokens is logged per runtime.
pub const REUSE_INTERVAL: Duration = Duration::from_secs(60);

/// The credential behind a bearer secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredCredential {
    Runtime {
        tenant: TenantId,
        runtime: RuntimeId,
        agent: AgentId,
        /// The agent's owner.
        user: Option<UserId>,
        /// The owner's current role.
        role: Option<Role>,
        kind: RuntimeKind,
        state: RuntimeState,
        token: TokenState,
    },
    Key {
        tenant: TenantId,
        key: KeyId,
        user: Option<UserId>,
        /// The lower of the key's and the user's role.
        role: Role,
        /// The user's current role.
        user_role: Option<Role>,
        scopes: Option<Vec<KeyScope>>,
        expires_at: Option<Timestamp>,
        /// Also set if the user was removed.
        revoked: bool,
        kind: KeyKind,
        /// The outside agent that uses this key to call others.
        agent: Option<AgentId>,
        /// The key or session that opened this session. `None` for an API key, and for a session opened by password.
        opener: Option<KeyId>,
    },
}

/// How often work is passed on unless its caller says otherwise.
pub const USUAL_TTL: i64 = 8;

/// What a run is to do and how: decided by its caller and never changed afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSpec {
    pub parent: Option<RunId>,
    pub task_type: String,
    pub input: Json,
    pub context_fragments: Option<Json>,
    pub allowed_tools: Option<Json>,
    pub workspace_root: Option<String>,
    pub priority: i64,
    /// A person created it, with a key or session of their own that had all of their rights.
    pub in_person: bool,
    pub trace_id: Option<String>,
    /// How many more agents the work may be passed on to.
    pub ttl: i64,
    pub callback: Option<delivery::RunCallback>,
    /// The maximum usage.
    pub budget: QuotaBudget,
    pub sandbox: Option<Sandbox>,
    /// The agent that gets the task if this one's account has reached a usage limit.
    pub fallback: Option<AgentId>,
    /// The run that this one continues, because that one's agent had reached a usage limit.
    pub continues: Option<RunId>,
    /// Replaces the agent's.
    pub permission_mode: Option<PermissionMode>,
    /// It works in a git worktree of its own.
    pub worktree: bool,
}

impl RunSpec {
    /// A task on its own, with the usual number of hops and no limits.
    pub fn new(task_type: &str, input: Json) -> Self {
        Self {
            parent: None,
            task_type: task_type.to_owned(),
            input,
            context_fragments: None,
            allowed_tools: None,
            workspace_root: None,
            priority: 0,
            in_person: false,
            trace_id: None,
            ttl: USUAL_TTL,
            callback: None,
            budget: QuotaBudget::default(),
            sandbox: None,
            fallback: None,
            continues: None,
            permission_mode: None,
            worktree: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    pub id: RunId,
    pub agent: AgentRef,
    /// `None` means the run is a conversation of its own, with its own uuid.
    pub conversation: Option<ConversationId>,
    /// Creates the conversation if there is none with this id, unless the run is refused.
    pub opens_conversation: bool,
    pub spec: RunSpec,
    pub limits: RunLimits,
    /// The user whose quotas it counts towards. `None` means the one who creates it.
    pub payer: Option<UserId>,
    /// Push configs from the start. A repeated request doesn't change them.
    pub push: Option<push::NewPushConfig>,
    /// The channel whose peer requested the run and follows it.
    pub follow: Option<channel::NewFollow>,
    /// The approval that allows it, which is used up by it.
    pub approval: Option<PermissionId>,
    /// 16 bytes of a hash over the caller's key.
    pub idempotency_key: Option<[u8; 16]>,
    /// 16 bytes of a hash over the complete request, so that a key can't stand for two requests.
    pub request_digest: [u8; 16],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    pub id: RunId,
    pub tenant: TenantId,
    pub agent: AgentId,
    pub agent_name: String,
    /// The given conversation, or the run's own.
    pub conversation: ConversationId,
    pub spec: RunSpec,
    pub caller: Actor,
    /// The context's user.
    pub user: Option<UserId>,
    /// The user whose quotas it counts towards.
    pub payer: Option<UserId>,
    pub state: RunLifecycle,
    /// The channel of the latest claim. `None` over HTTP.
    pub channel: Option<ChannelId>,
    /// The runtime that holds the claim, or held it last.
    pub runtime: Option<RuntimeId>,
    /// The time of the latest claim.
    pub claimed_at: Option<Timestamp>,
    pub result: Option<Json>,
    pub usage: Option<Json>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// The newest seq of the run's stream.
    pub last_seq: i64,
}

/// Whether `create_run` created the run or found it by its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunCreation {
    New(RunRecord),
    Existing(RunRecord),
}

/// A claim, with everything else the worker needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedRunRecord {
    pub run: RunRecord,
    /// The agent's own instructions.
    pub agent_instructions: Option<String>,
    /// The metadata of the conversation, if it was created explicitly.
    pub conversation_metadata: Option<Json>,
    /// See [`AccountRecord::instructing_owner`].
    pub instructing_owner: Option<UserId>,
    /// The remaining budget, considering its own budget and its quotas.
    pub left: QuotaBudget,
}

/// One event of a run's own stream, before it has a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub kind: EventKind,
    pub data: Json,
}

/// A worker's progress report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewProgress {
    pub events: Vec<NewEvent>,
    pub usage: Option<Json>,
    /// `None` if it can't be identified.
    pub report: Option<channel::ReportKey>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunResult {
    Completed {
        output: Json,
        artifacts: Vec<ArtifactId>,
    },
    /// `result` is the complete `task_result`: `{"error","code","native_code"?,…}`.
    Failed {
        code: FailureCode,
        result: Json,
    },
    /// A usage limit stopped the work. The run goes back to the queue at this time.
    Deferred {
        until: Timestamp,
    },
}

/// The effects of a heartbeat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatResult {
    /// Named runs that this runtime no longer holds (cancelled, ended or claimed by another).
    pub not_held: Vec<RunId>,
    /// Claims the runtime didn't name, which were lost as a result.
    pub lost: Vec<RunId>,
}

/// Lifetimes of claims, from the hub's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long a claim lasts without renewal.
    pub lease: Duration,
    /// A claim younger than this need not be named yet: its response may still be in transit.
    pub grace: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    pub agent: Option<AgentId>,
    pub conversation: Option<ConversationId>,
    pub parent: Option<RunId>,
    pub user: Option<UserId>,
    /// Only runs created at this time or later …
    pub since: Option<Timestamp>,
    /// … and before this one.
    pub before: Option<Timestamp>,
    /// Only runs whose usage tells of at least this cost.
    pub min_micro_usd: Option<u64>,
    /// In lowercase. Only runs in which a person finds it: in the first [`crate::MAX_SEARCHED`] bytes of the task (its
    /// text, or else all of its JSON), in the id, in the current name of the agent, or in the caller, which is the name
    /// of the person on whose behalf or the agent by which it was created, and the actor as the log writes it.
    pub text: Option<String>,
    pub detail: RunDetail,
}

/// How much of each run a list includes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RunDetail {
    #[default]
    Whole,
    /// See [`RunRecord::excerpt`].
    Excerpt,
}

/// Which part of a list to read. Lists are newest first unless their method says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pagination {
    /// At least one.
    pub limit: usize,
    /// The `next` of the previous page.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    pub items: Vec<T>,
    /// `None` on the last page.
    pub next: Option<String>,
}

/// Where words are in the output of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutputMatches {
    pub seqs: Vec<i64>,
    /// There are more than were asked for.
    pub more: bool,
}

/// Counts of live runs and waiting items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LiveCounts {
    pub pending: u64,
    pub running: u64,
    /// When the oldest pending run was created.
    pub oldest_pending: Option<Timestamp>,
    /// Permission requests that wait for a person.
    pub permissions: u64,
    pub oldest_permission: Option<Timestamp>,
    /// Paired devices that are online.
    pub devices: u64,
    /// Deliveries that are still being attempted.
    pub deliveries: u64,
    pub oldest_delivery: Option<Timestamp>,
}

/// Events of a run's stream after a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEvents {
    pub events: Vec<attache_protocol::wire::event::Event>,
    /// Everything up to this seq may have been removed by retention; 0 when nothing was.
    pub floor: i64,
    /// The run's newest seq, read together with the events.
    pub last_seq: i64,
    pub status: RunStatus,
}

/// The events that show the state of a run, in order: see [`crate::Store::run_outline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutline {
    pub events: Vec<attache_protocol::wire::event::Event>,
    /// Everything up to this seq may have been removed by retention; 0 when nothing was.
    pub floor: i64,
    /// Whether nothing was left out because of its size.
    pub is_whole: bool,
}

/// The purpose of an outline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutlineScope {
    Everything,
    /// Without content that streams show piece by piece.
    Artifacts,
}

/// Rows of a tenant's log after a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    pub rows: Vec<attache_protocol::log::LogRow>,
    pub head: i64,
    /// The chain's hash at the head.
    pub head_hash: [u8; 32],
    /// Rows up to this seq were removed by retention.
    pub floor: i64,
    /// The chain's hash at the floor.
    pub floor_hash: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewConversation {
    pub id: ConversationId,
    pub title: Option<String>,
    pub metadata: Option<Json>,
    /// The agent it is meant for, which counts as having a part in it. Not looked up.
    pub agent: Option<AgentId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationRecord {
    pub id: ConversationId,
    pub title: Option<String>,
    pub metadata: Option<Json>,
    /// Its owner: the context's user, or the run's.
    pub user: Option<UserId>,
    /// Every agent that ever had a run in it, or that it was created for, and since when. It stays when the run is
    /// deleted: what a private agent left in the conversation stays as private as the agent.
    pub agents: BTreeMap<AgentId, Timestamp>,
    pub spoken_by: SpokenBy,
    pub created_at: Timestamp,
}

/// Who gave the agents of a conversation their tasks. An agent may remember them, so it stays when a run is deleted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SpokenBy {
    /// Nobody but the conversation's user, in person.
    #[default]
    User,
    /// Also others, or the user with fewer rights than they have.
    Others,
}

// === impl SpokenBy ===

impl SpokenBy {
    /// What a run of this speaker makes of a conversation of this user.
    pub(crate) fn of(spec: &RunSpec, speaker: Option<UserId>, user: Option<UserId>) -> Self {
        match spec.in_person && spec.parent.is_none() && speaker.is_some() && speaker == user {
            true => Self::User,
            false => Self::Others,
        }
    }
}

/// Adds an agent to those of a conversation. The first time counts.
pub(crate) fn join(agents: &mut BTreeMap<AgentId, Timestamp>, agent: AgentId, at: Timestamp) {
    let joined = agents.entry(agent).or_insert(at);
    *joined = at.min(*joined);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    pub id: MessageId,
    pub conversation: ConversationId,
    pub role: conversation::MessageRole,
    pub text: String,
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    pub id: MessageId,
    pub role: conversation::MessageRole,
    pub author: Actor,
    pub text: String,
    pub metadata: Option<Json>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewArtifact {
    pub id: ArtifactId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub media_type: String,
    pub size: u64,
    pub blake3: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRecord {
    pub id: ArtifactId,
    pub workspace: WorkspaceId,
    pub name: String,
    pub media_type: String,
    pub size: u64,
    pub blake3: [u8; 32],
    /// The run that named it in its result.
    pub produced_by: Option<RunId>,
    pub created_at: Timestamp,
}

/// The effects of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepResult {
    /// Runs that ended or went back to the queue.
    pub runs: Vec<RunId>,
    /// Runtimes that went offline.
    pub offline: Vec<RuntimeId>,
}
