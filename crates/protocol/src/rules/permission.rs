//! A permission request: who may answer it, once, and which standing grant answers it without a person.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Json,
    id::{AgentId, ChannelId, ConversationId, GrantId, RunId},
    time::Timestamp,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = PermissionState)]
pub enum PermissionState {
    Pending,
    Approved,
    Denied,
    /// Nobody answered in time: the answer is no.
    Expired,
    /// Nobody needs the answer any more: the run ended or lost its claim.
    Cancelled,
}

/// What happens when nobody answers in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// The answer is no, and the run fails with `permission_denied`.
    #[default]
    DenyAndHalt,
    /// The answer is no, and the agent goes on as it can.
    DenyAndContinue,
    /// The request never expires.
    KeepWaiting,
}

/// Where the answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionSource)]
pub enum DecisionSource {
    User,
    /// A standing grant.
    Policy,
    Timeout,
}

/// How far an answer reaches beyond its own request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DecisionScope)]
pub enum DecisionScope {
    #[default]
    Once,
    Run,
    Conversation,
    Agent,
}

/// Whether an agent asks a person before it takes a risky step, as its runtime declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalMode {
    Yes,
    /// Also of one that declares nothing.
    No,
}

/// What comes before the work of a run is forwarded to another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardingCheck {
    /// Nothing: the other agent asks by itself.
    Free,
    /// A person approves the very task, as a step of the run that it comes from.
    NeedsApproval,
}

/// A hash over exactly what is asked for: tool, input, working folder and paths, and what was shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PermissionSubject(pub [u8; 32]);

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    pub approved: bool,
    pub scope: DecisionScope,
    /// Beyond `once`: every tool with such a name, whatever its input. Without it the answer holds for the same subject.
    pub tool_pattern: Option<String>,
    /// When the grant ends.
    pub until: Option<Timestamp>,
    pub this_channel_only: bool,
    pub comment: Option<String>,
}

/// A standing answer, allowing or denying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingGrant {
    pub id: GrantId,
    pub approved: bool,
    pub reach: GrantReach,
    pub what: GrantPattern,
    pub channel: Option<ChannelId>,
    pub until: Option<Timestamp>,
    pub revoked: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrantReach {
    Run(RunId),
    Conversation { conversation: ConversationId, agent: AgentId },
    Agent(AgentId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GrantPattern {
    Subject(PermissionSubject),
    /// Tools by name; `*` stands for any characters.
    Tools(String),
}

/// The request as a grant looks at it.
#[derive(Debug, Clone, Copy)]
pub struct PermissionFacts<'a> {
    pub run: RunId,
    pub conversation: ConversationId,
    pub agent: AgentId,
    pub channel: Option<ChannelId>,
    pub tool: &'a str,
    pub subject: PermissionSubject,
    /// The asker does not disclose all of the input ([`hides_input`]).
    pub hides_input: bool,
}

/// What a request may leave undisclosed and still show its whole input.
const NON_INPUT_UNDISCLOSED: [&str; 3] = ["paths", "more paths", "the rest of the diff"];

/// How a request was settled before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorDecision<'a> {
    pub state: PermissionState,
    pub by: &'a str,
    /// The decision, if a person made one.
    pub decision: Option<&'a ApprovalDecision>,
}

/// What to do with a person's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionVerdict {
    /// It is the first: it counts.
    Settles,
    /// The same person said the same before: they get it back.
    Repeats,
    /// Somebody or something else was first. The answer is recorded, and changes nothing.
    TooLate,
}

/// Approvals of one agent must not be walked around through another: what asks nobody does only what a person has seen.
pub const fn forwarding(callee: ApprovalMode) -> ForwardingCheck {
    match callee {
        ApprovalMode::Yes => ForwardingCheck::Free,
        ApprovalMode::No => ForwardingCheck::NeedsApproval,
    }
}

/// Judges an answer to a request that is `Pending` (`None`) or settled.
pub fn decide(settled: Option<PriorDecision<'_>>, by: &str, decision: &ApprovalDecision) -> DecisionVerdict {
    match settled {
        None => DecisionVerdict::Settles,
        Some(before) if before.by == by && before.decision == Some(decision) => DecisionVerdict::Repeats,
        Some(_) => DecisionVerdict::TooLate,
    }
}

/// Whether the person who decides does not see all that the tool would be given. Words that nobody knows count as a yes.
pub fn hides_input(undisclosed: &[String]) -> bool {
    undisclosed.iter().any(|what| !NON_INPUT_UNDISCLOSED.contains(&what.as_str()))
}

/// How far a yes may reach at most. Over an input that nobody saw it holds once: two such requests look the same, whatever
/// they would do. A no may always stand.
pub const fn widest(approved: bool, hides_input: bool) -> DecisionScope {
    if approved && hides_input { DecisionScope::Once } else { DecisionScope::Agent }
}

/// The standing answer to a request, if there is one. A denial beats every grant.
pub fn judge<'a>(
    grants: impl IntoIterator<Item = &'a StandingGrant>,
    request: PermissionFacts<'_>,
    now: Timestamp,
) -> Option<&'a StandingGrant> {
    let mut allowing = None;
    for grant in grants {
        if !grant.covers(request, now) {
            continue;
        }
        if !grant.approved {
            return Some(grant);
        }
        allowing = allowing.or(Some(grant));
    }
    allowing
}

// === impl StandingGrant ===

impl StandingGrant {
    /// What a decision leaves behind for the requests to come; nothing if it was for once, only for the channel of a request
    /// that has none, or may not reach further.
    pub fn of(id: GrantId, decision: &ApprovalDecision, request: PermissionFacts<'_>) -> Option<Self> {
        if widest(decision.approved, request.hides_input) == DecisionScope::Once {
            return None;
        }
        let reach = match decision.scope {
            DecisionScope::Once => return None,
            DecisionScope::Run => GrantReach::Run(request.run),
            DecisionScope::Conversation => {
                GrantReach::Conversation { conversation: request.conversation, agent: request.agent }
            }
            DecisionScope::Agent => GrantReach::Agent(request.agent),
        };
        let what = match &decision.tool_pattern {
            Some(pattern) => GrantPattern::Tools(pattern.clone()),
            None => GrantPattern::Subject(request.subject),
        };
        let channel = match (decision.this_channel_only, request.channel) {
            (true, None) => return None,
            (true, Some(channel)) => Some(channel),
            (false, _) => None,
        };
        Some(Self { id, approved: decision.approved, reach, what, channel, until: decision.until, revoked: false })
    }

    pub fn covers(&self, request: PermissionFacts<'_>, now: Timestamp) -> bool {
        let reaches = match self.reach {
            GrantReach::Run(run) => run == request.run,
            GrantReach::Conversation { conversation, agent } => {
                conversation == request.conversation && agent == request.agent
            }
            GrantReach::Agent(agent) => agent == request.agent,
        };
        let is_meant = match &self.what {
            GrantPattern::Subject(subject) => *subject == request.subject,
            GrantPattern::Tools(pattern) => matches(pattern, request.tool),
        };
        let is_here = self.channel.is_none_or(|channel| request.channel == Some(channel));
        let is_alive = !self.revoked && self.until.is_none_or(|until| now < until);
        let may_answer = widest(self.approved, request.hides_input) != DecisionScope::Once;
        reaches && is_meant && is_here && is_alive && may_answer
    }
}

/// Whether a tool's name fits a pattern in which `*` stands for any characters.
pub fn matches(pattern: &str, tool: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = tool.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    true
}

// === impl PermissionSubject ===

impl PermissionSubject {
    /// Every field is length-prefixed, so no two subjects share an encoding.
    pub fn of(tool: &str, input: &Json, cwd: Option<&str>, paths: &[String]) -> Self {
        let mut hasher = blake3::Hasher::new();
        let mut field = |text: &str| {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        field(tool);
        field(input.get());
        field(if cwd.is_some() { "cwd" } else { "" });
        field(cwd.unwrap_or_default());
        paths.iter().for_each(|path| field(path));
        Self(*hasher.finalize().as_bytes())
    }

    /// The same with the diff that the person sees, and with what is kept from them. Without either it stays as it was.
    #[must_use]
    pub fn showing(self, diff: Option<&str>, undisclosed: &[String]) -> Self {
        if diff.is_none() && undisclosed.is_empty() {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        let mut field = |text: &str| {
            hasher.update(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        field(if diff.is_some() { "diff" } else { "" });
        field(diff.unwrap_or_default());
        undisclosed.iter().for_each(|what| field(what));
        Self(*hasher.finalize().as_bytes())
    }
}

// === impl PermissionState ===

impl PermissionState {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired, Self::Cancelled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub const fn decided(approved: bool) -> Self {
        if approved { Self::Approved } else { Self::Denied }
    }

    /// What the asker is told; `None` while there is no answer. No answer in time means no.
    pub const fn approved(self) -> Option<bool> {
        match self {
            Self::Pending => None,
            Self::Approved => Some(true),
            Self::Denied | Self::Expired | Self::Cancelled => Some(false),
        }
    }
}

// === impl OnTimeout ===

impl OnTimeout {
    pub const ALL: [Self; 3] = [Self::DenyAndHalt, Self::DenyAndContinue, Self::KeepWaiting];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DenyAndHalt => "deny_and_halt",
            Self::DenyAndContinue => "deny_and_continue",
            Self::KeepWaiting => "keep_waiting",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == text)
    }
}

// === impl DecisionSource ===

impl DecisionSource {
    pub const ALL: [Self; 3] = [Self::User, Self::Policy, Self::Timeout];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Policy => "policy",
            Self::Timeout => "timeout",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == text)
    }
}

// === impl DecisionScope ===

impl DecisionScope {
    pub const ALL: [Self; 4] = [Self::Once, Self::Run, Self::Conversation, Self::Agent];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Run => "run",
            Self::Conversation => "conversation",
            Self::Agent => "agent",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}
