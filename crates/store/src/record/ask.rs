//! Permission requests, grants, and the other questions that a worker asks.

use attache_protocol::{
    AgentId, AskId, ChannelId, ConversationId, GrantId, InputId, Json, PermissionId, RunId, RuntimeId, Timestamp,
    rules::{
        permission::{Decision, OnTimeout, Request, Source, State, Subject, hides_input},
        run::{Status, Waiting},
    },
    wire::ask::AskState,
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
    pub subject: Subject,
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
pub struct Permission {
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
    pub subject: Subject,
    /// The asker's own name for the question; on a channel, the request's `msg_id`.
    pub request: Option<String>,
    pub requested_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    pub state: State,
    /// How it was settled; `None` while it is pending.
    pub settled: Option<Settled>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    pub at: Timestamp,
    /// The decider as the log shows it; `system` for time-outs and cancellations, `grant:gnt_…` for a grant.
    pub by: String,
    /// `None` when it was cancelled.
    pub source: Option<Source>,
    /// A person's decision.
    pub decision: Option<Decision>,
    /// Over which surface it came, and from which address.
    pub via: Option<String>,
    pub from: Option<String>,
    /// The grant that the decision left behind, or that answered.
    pub grant: Option<GrantId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDecision {
    pub decision: Decision,
    /// The id of the grant, if the decision makes one.
    pub grant: GrantId,
    pub via: String,
    pub from: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionFilter {
    pub state: Option<State>,
    pub run: Option<RunId>,
    pub agent: Option<AgentId>,
}

/// A grant with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    pub grant: attache_protocol::rules::permission::Grant,
    pub agent: AgentId,
    pub permission: PermissionId,
    pub created_by: String,
    pub created_at: Timestamp,
    /// When the run ended that it was for.
    pub ended_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAsk {
    pub id: AskId,
    pub run: RunId,
    pub what: AskWhat,
    /// The asker's own name for the question.
    pub request: Option<String>,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskWhat {
    /// Of the caller: the run waits.
    Input { prompt: String, parts: Option<Json> },
    /// Of whoever can authorize what an agent outside does: the run waits as for an approval, which is given elsewhere. The
    /// caller may speak to it meanwhile.
    Authorization { prompt: String, parts: Option<Json> },
    /// Of the engine that follows the run.
    Tool { tool: String, arguments: Json },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub id: AskId,
    pub run: RunId,
    pub epoch: i64,
    pub what: AskWhat,
    pub request: Option<String>,
    pub asked_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub state: AskState,
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
    pub answers: Option<AskId>,
    /// 16 bytes of a hash over the caller's key: the same one again is the same input.
    pub key: Option<[u8; 16]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input {
    pub id: InputId,
    pub run: RunId,
    pub parts: Json,
    pub message: Option<Json>,
    /// The question that it answered.
    pub ask: Option<AskId>,
    /// Of the run, afterwards.
    pub status: Status,
}

// === impl Permission ===

impl Permission {
    /// The request as a grant looks at it.
    pub fn as_asked(&self) -> Request<'_> {
        Request {
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

// === impl AskWhat ===

impl AskWhat {
    /// What a run waits for that asks this.
    pub const fn waiting(&self) -> Option<Waiting> {
        match self {
            Self::Input { .. } => Some(Waiting::Input),
            Self::Authorization { .. } => Some(Waiting::Approval),
            Self::Tool { .. } => None,
        }
    }
}
