//! Permission requests, grants, and other worker requests.

use attache_protocol::{
    Actor, AgentId, ChannelId, ConversationId, GrantId, InputId, Json, KeyId, PermissionId, RunId, RuntimeId,
    Timestamp, UserId, WorkerRequestId,
    rules::{
        permission::{
            self, ApprovalDecision, DecisionScope, DecisionSource, OnTimeout, OnceReason, PermissionFacts,
            PermissionState, PermissionSubject, StandingGrant,
        },
        permission_mode::PlanState,
        run::{RunStatus, WaitReason},
    },
    wire::{account::ApprovalConfirmation, input_request::WorkerRequestState},
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
    /// The change, as a unified diff.
    pub diff: Option<String>,
    /// Details the agent doesn't disclose.
    pub undisclosed: Vec<String>,
    /// It is a call to a private agent.
    pub private_agent: bool,
    pub subject: PermissionSubject,
    /// The asker's own id for the question.
    pub request: Option<String>,
    /// The channel over which it is asked.
    pub channel: Option<ChannelId>,
    /// `None` means it never expires.
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    /// A webhook to notify if it waits for a person.
    pub notify: Option<String>,
    /// The only person whose words the agent may hear, also those of an earlier denial that still applies, and who approves
    /// its steps in advance. `None` if it may hear anyone's.
    pub speaker: Option<UserId>,
    /// Why the agent's settings approve it, unless a standing grant decides otherwise.
    pub trusted: Option<String>,
    /// Before the run's plan is approved, only a person approves its steps.
    pub plan: PlanState,
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
    /// The change, as a unified diff.
    pub diff: Option<String>,
    /// Details the agent doesn't disclose.
    pub undisclosed: Vec<String>,
    /// It is a call to a private agent.
    pub private_agent: bool,
    /// What an approval needs: the agent's current setting.
    pub confirm_approvals: ApprovalConfirmation,
    pub subject: PermissionSubject,
    /// The asker's own id for the question; on a channel, the request's `msg_id`.
    pub request: Option<String>,
    pub requested_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    pub state: PermissionState,
    /// The run that it started.
    pub used_by: Option<RunId>,
    /// How it was settled; `None` while it is pending.
    pub settled: Option<PermissionSettlement>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionSettlement {
    pub at: Timestamp,
    /// The decider as shown in the log; `system` for timeouts and cancellations, `grant:gnt_…` for a grant.
    pub by: Actor,
    /// `None` if it was cancelled.
    pub source: Option<DecisionSource>,
    /// A person's decision, or that of the agent's settings.
    pub decision: Option<ApprovalDecision>,
    /// The surface and the address it came from.
    pub via: Option<String>,
    pub from: Option<String>,
    /// The grant that resulted from the decision, or that answered.
    pub grant: Option<GrantId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDecision {
    pub decision: ApprovalDecision,
    /// The id of the grant, if the decision creates one.
    pub grant: GrantId,
    /// Who answers for that grant.
    pub maker: GrantMaker,
    pub via: String,
    pub from: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionFilter {
    pub state: Option<PermissionState>,
    pub run: Option<RunId>,
    pub agent: Option<AgentId>,
}

/// Who answers for a grant. An approval ends when the user is removed or may no longer decide, or when the key is
/// revoked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GrantMaker {
    pub user: Option<UserId>,
    /// The API key that decided, or that opened the session it was decided in.
    pub key: Option<KeyId>,
    /// The user decided with all of their rights.
    pub in_person: bool,
}

/// A grant with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    pub grant: attache_protocol::rules::permission::StandingGrant,
    pub agent: AgentId,
    pub permission: PermissionId,
    pub created_by: Actor,
    pub maker: GrantMaker,
    pub created_at: Timestamp,
    /// When the run it applied to ended.
    pub ended_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorkerRequest {
    pub id: WorkerRequestId,
    pub run: RunId,
    pub what: WorkerRequestKind,
    /// The asker's own id for the question.
    pub request: Option<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerRequestKind {
    /// To the caller: the run waits.
    Input { prompt: String, parts: Option<Json> },
    /// To whoever can authorize an outside agent's step: the run waits as for an approval, which is given elsewhere.
    /// The caller may send input in the meantime.
    Authorization { prompt: String, parts: Option<Json> },
    /// To the engine that follows the run.
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
    /// The parts of an input, or the engine's complete reply to a tool call.
    pub answer: Option<Json>,
    /// The A2A message that contained an input.
    pub message: Option<Json>,
}

/// Whom an input reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InputTarget {
    /// The oldest open question; the working agent, if nothing is asked.
    #[default]
    OldestQuestion,
    /// This question and no other.
    Question(WorkerRequestId),
    /// The working agent, whatever it asks.
    Agent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInput {
    pub id: InputId,
    pub run: RunId,
    /// A JSON array.
    pub parts: Json,
    /// The A2A message that contained it.
    pub message: Option<Json>,
    pub target: InputTarget,
    /// 16 bytes of a hash over the caller's key. The same key means the same input.
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
    /// The run's status afterwards.
    pub status: RunStatus,
}

// === impl PermissionSettlement ===

impl PermissionSettlement {
    /// The answer of a standing grant, with the decision of a denial.
    pub(crate) fn by_grant(
        grant: &StandingGrant,
        decision: Option<ApprovalDecision>,
        at: Timestamp,
    ) -> (PermissionState, Self) {
        let settled = Self {
            at,
            by: Actor::Grant(grant.id),
            source: Some(DecisionSource::Policy),
            decision,
            via: None,
            from: None,
            grant: Some(grant.id),
        };
        (PermissionState::decided(grant.approved), settled)
    }

    /// The answer of the agent's settings.
    pub(crate) fn by_mode(reason: String, at: Timestamp) -> (PermissionState, Self) {
        let decision = ApprovalDecision {
            approved: true,
            scope: DecisionScope::Once,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: Some(reason),
        };
        let settled = Self {
            at,
            by: Actor::System,
            source: Some(DecisionSource::Mode),
            decision: Some(decision),
            via: None,
            from: None,
            grant: None,
        };
        (PermissionState::Approved, settled)
    }
}

// === impl GrantMaker ===

impl GrantMaker {
    /// The user, if they decided in person.
    pub(crate) fn giver(&self) -> Option<UserId> {
        self.user.filter(|_| self.in_person)
    }
}

// === impl PermissionRecord ===

impl PermissionRecord {
    /// The request in the form that grants are matched against. `in_person` is the only person who approves the run's steps
    /// in advance.
    pub fn as_asked(&self, in_person: Option<UserId>) -> PermissionFacts<'_> {
        PermissionFacts {
            run: self.run,
            conversation: self.conversation,
            agent: self.agent,
            channel: self.channel,
            tool: &self.tool,
            subject: self.subject,
            once: self.once(),
            in_person,
        }
    }

    /// Why an approval of it counts only once.
    pub fn once(&self) -> Option<OnceReason> {
        permission::once(&self.tool, self.private_agent, &self.undisclosed)
    }
}

// === impl WorkerRequestKind ===

impl WorkerRequestKind {
    /// What the run waits for because of this request.
    pub const fn waiting(&self) -> Option<WaitReason> {
        match self {
            Self::Input { .. } => Some(WaitReason::Input),
            Self::Authorization { .. } => Some(WaitReason::Approval),
            Self::Tool { .. } => None,
        }
    }
}
