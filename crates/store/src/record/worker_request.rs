//! Permission requests, grants, and the other questions that a worker asks.

use attache_protocol::{
    AgentId, ChannelId, ConversationId, GrantId, InputId, Json, PermissionId, RunId, RuntimeId, Timestamp,
    WorkerRequestId,
    rules::{
        permission::{
            ApprovalDecision, DecisionSource, OnTimeout, PermissionFacts, PermissionState, PermissionSubject,
            hides_input,
        },
        run::{RunStatus, WaitReason},
    },
    wire::input_request::WorkerRequestState,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPermission {
    pub id: PermissionId,
    pub run: RunId,
    pub tool: String,
    pub input: Json,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// What would change, as a unified diff.
    pub diff: Option<String>,
    /// What the agent does not tell.
    pub undisclosed: Vec<String>,
    pub subject: PermissionSubject,
    /// The asker's own name for the question.
    pub request: Option<String>,
    /// The channel over which it is asked.
    pub channel: Option<ChannelId>,
    /// `None`: it waits for ever.
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    /// A webhook that is told if it waits for a person.
    pub notify: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRecord {
    pub id: PermissionId,
    pub run: RunId,
    pub agent: AgentId,
    pub agent_name: String,
    pub conversation: ConversationId,
    pub runtime: RuntimeId,
    pub epoch: i64,
    pub channel: Option<ChannelId>,
    pub tool: String,
    pub input: Json,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// What would change, as a unified diff.
    pub diff: Option<String>,
    /// What the agent does not tell.
    pub undisclosed: Vec<String>,
    pub subject: PermissionSubject,
    /// The asker's own name for the question; on a channel, the request's `msg_id`.
    pub request: Option<String>,
    pub requested_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    pub state: PermissionState,
    /// How it was settled; `None` while it is pending.
    pub settled: Option<PermissionSettlement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionSettlement {
    pub at: Timestamp,
    /// The decider as the log shows it; `system` for time-outs and cancellations, `grant:gnt_…` for a grant.
    pub by: String,
    /// `None` when it was cancelled.
    pub source: Option<DecisionSource>,
    /// A person's decision.
    pub decision: Option<ApprovalDecision>,
    /// Over which surface it came, and from which address.
    pub via: Option<String>,
    pub from: Option<String>,
    /// The grant that the decision left behind, or that answered.
    pub grant: Option<GrantId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDecision {
    pub decision: ApprovalDecision,
    /// The id of the grant, if the decision makes one.
    pub grant: GrantId,
    pub via: String,
    pub from: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionFilter {
    pub state: Option<PermissionState>,
    pub run: Option<RunId>,
    pub agent: Option<AgentId>,
}

/// A grant with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    pub grant: attache_protocol::rules::permission::StandingGrant,
    pub agent: AgentId,
    pub permission: PermissionId,
    pub created_by: String,
    pub created_at: Timestamp,
    /// When the run ended that it was for.
    pub ended_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorkerRequest {
    pub id: WorkerRequestId,
    pub run: RunId,
    pub what: WorkerRequestKind,
    /// The asker's own name for the question.
    pub request: Option<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerRequestKind {
    /// Of the caller: the run waits.
    Input { prompt: String, parts: Option<Json> },
    /// Of whoever can authorize what an agent outside does: the run waits as for an approval, which is given elsewhere. The
    /// caller may speak to it meanwhile.
    Authorization { prompt: String, parts: Option<Json> },
    /// Of the engine that follows the run.
    Tool { tool: String, arguments: Json },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerRequestRecord {
    pub id: WorkerRequestId,
    pub run: RunId,
    pub epoch: i64,
    pub what: WorkerRequestKind,
    pub request: Option<String>,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub state: WorkerRequestState,
    /// Parts of an input; the engine's whole reply to a tool call.
    pub answer: Option<Json>,
    /// The A2A message that brought an input.
    pub message: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    pub id: InputId,
    pub run: RunId,
    /// A JSON array.
    pub parts: Json,
    /// The A2A message that brought it.
    pub message: Option<Json>,
    /// The question that it answers, and no other. `None`: the oldest, if there is one.
    pub answers: Option<WorkerRequestId>,
    /// 16 bytes of a hash over the caller's key: the same one again is the same input.
    pub key: Option<[u8; 16]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputRecord {
    pub id: InputId,
    pub run: RunId,
    pub parts: Json,
    pub message: Option<Json>,
    /// The question that it answered.
    pub ask: Option<WorkerRequestId>,
    /// Of the run, afterwards.
    pub status: RunStatus,
}

// === impl PermissionRecord ===

impl PermissionRecord {
    /// The request as a grant looks at it.
    pub fn as_asked(&self) -> PermissionFacts<'_> {
        PermissionFacts {
            run: self.run,
            conversation: self.conversation,
            agent: self.agent,
            channel: self.channel,
            tool: &self.tool,
            subject: self.subject,
            hides_input: hides_input(&self.undisclosed),
        }
    }
}

// === impl WorkerRequestKind ===

impl WorkerRequestKind {
    /// What a run waits for that asks this.
    pub const fn waiting(&self) -> Option<WaitReason> {
        match self {
            Self::Input { .. } => Some(WaitReason::Input),
            Self::Authorization { .. } => Some(WaitReason::Approval),
            Self::Tool { .. } => None,
        }
    }
}
