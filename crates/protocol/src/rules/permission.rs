//! Permission requests: who may decide, once, and which standing grant answers without a person.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    Actor, Json,
    id::{AgentId, ChannelId, ConversationId, GrantId, RunId, UserId},
    rules::permission_mode::{PLAN_TOOL, PlanState},
    time::Timestamp,
    wire::account::Callers,
};

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[schema(as = PermissionState)]
    pub enum PermissionState {
        Pending = "pending",
        Approved = "approved",
        Denied = "denied",
        /// Unanswered in time, which counts as denied.
        Expired = "expired",
        /// The answer is no longer needed: the run ended or lost its claim.
        Cancelled = "cancelled",
    }
}

text_enum! {
    /// What happens if a request is not answered in time.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum OnTimeout {
        /// Denied, and the run fails with `permission_denied`.
        #[default]
        DenyAndHalt = "deny_and_halt",
        /// Denied, and the agent continues without it.
        DenyAndContinue = "deny_and_continue",
        /// The request never expires.
        KeepWaiting = "keep_waiting",
    }
}

text_enum! {
    /// Where the decision came from.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[schema(as = DecisionSource)]
    pub enum DecisionSource {
        User = "user",
        /// A standing grant.
        Policy = "policy",
        /// The agent's permission mode, or one of its trusted commands.
        Mode = "mode",
        Timeout = "timeout",
    }
}

text_enum! {
    /// How far a decision reaches beyond its own request.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[schema(as = DecisionScope)]
    pub enum DecisionScope {
        #[default]
        Once = "once",
        Run = "run",
        Conversation = "conversation",
        Agent = "agent",
    }
}

text_enum! {
    /// Why an approval counts only for its own request, and no standing grant answers it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum OnceReason {
        /// The worker doesn't disclose the complete input, so different requests look the same.
        HiddenInput = "hidden_input",
        /// It is a call to a private agent, which acts with its owner's rights.
        PrivateAgent = "private_agent",
        /// It is the plan of a run that plans first.
        Plan = "plan",
    }
}

/// Whether an agent asks a person before it takes a risky step, as its runtime declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApprovalMode {
    Yes,
    /// Also the default if nothing is declared.
    No,
}

/// What is needed before a run passes work to another agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardingCheck {
    /// Nothing: the other agent asks for approval itself.
    Free,
    /// A person approves this exact task, as a step of the calling run.
    NeedsApproval(ForwardingReason),
}

/// Why a person approves a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ForwardingReason {
    /// The agent does what it is told without asking.
    NoApprovals,
    /// The agent is private: it acts with its owner's rights, so its owner sees every call, even if it asks for itself.
    PrivateAgent,
}

/// A hash of the exact request: tool, input, working folder, paths, and what was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PermissionSubject(pub [u8; 32]);

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDecision {
    pub approved: bool,
    pub scope: DecisionScope,
    /// With a scope other than `once`: all tools with matching names, whatever their input. Without it, only the same
    /// subject.
    pub tool_pattern: Option<String>,
    /// When the grant expires.
    pub until: Option<Timestamp>,
    pub this_channel_only: bool,
    pub comment: Option<String>,
}

/// A standing grant or denial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingGrant {
    pub id: GrantId,
    pub approved: bool,
    pub reach: GrantReach,
    pub what: GrantPattern,
    pub channel: Option<ChannelId>,
    pub until: Option<Timestamp>,
    pub revoked: bool,
    /// The person who gave it, if they did so in person.
    pub giver: Option<UserId>,
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
    /// Tools by name. `*` matches any characters.
    Tools(String),
}

/// The request, as grants see it.
#[derive(Debug, Clone, Copy)]
pub struct PermissionFacts<'a> {
    pub run: RunId,
    pub conversation: ConversationId,
    pub agent: AgentId,
    pub channel: Option<ChannelId>,
    pub tool: &'a str,
    pub subject: PermissionSubject,
    /// Why an approval of it can't stand. `None` if it can.
    pub once: Option<OnceReason>,
    /// The person who started the run, if it may work with all of their rights, outside the walls of their device. Only
    /// they approve its steps in advance.
    pub in_person: Option<UserId>,
}

/// The tool name under which a run calls another agent, followed by the agent's name.
pub const REMOTE_AGENT: &str = "remote_agent/";

/// What a request may leave undisclosed while still showing its complete input.
const NON_INPUT_UNDISCLOSED: [&str; 3] = ["paths", "more paths", "the rest of the diff"];

/// How a request was settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorDecision<'a> {
    pub state: PermissionState,
    pub by: &'a Actor,
    /// The decision, if a person made it.
    pub decision: Option<&'a ApprovalDecision>,
}

/// What to do with a person's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionVerdict {
    /// It is the first, so it counts.
    Settles,
    /// The same person repeats the same decision and gets it back.
    Repeats,
    /// Someone or something else decided first. The attempt is logged and changes nothing.
    TooLate,
}

/// An agent's approvals can't be bypassed through another agent: an agent that doesn't ask, or is private to its owner,
/// does only what a person has reviewed.
pub const fn forwarding(callee: ApprovalMode, callers: Callers) -> ForwardingCheck {
    match (callers, callee) {
        (Callers::Owner, _) => ForwardingCheck::NeedsApproval(ForwardingReason::PrivateAgent),
        (Callers::Everyone, ApprovalMode::No) => ForwardingCheck::NeedsApproval(ForwardingReason::NoApprovals),
        (Callers::Everyone, ApprovalMode::Yes) => ForwardingCheck::Free,
    }
}

/// Judges a decision on a request that is `Pending` (`None`) or settled.
pub fn decide(settled: Option<PriorDecision<'_>>, by: &Actor, decision: &ApprovalDecision) -> DecisionVerdict {
    match settled {
        None => DecisionVerdict::Settles,
        Some(before) if before.by == by && before.decision.is_some_and(|before| decision.repeats(before)) => {
            DecisionVerdict::Repeats
        }
        Some(_) => DecisionVerdict::TooLate,
    }
}

/// Whether part of the tool's input is hidden from the person. Unknown words count as hidden.
pub fn hides_input(undisclosed: &[String]) -> bool {
    undisclosed.iter().any(|what| !NON_INPUT_UNDISCLOSED.contains(&what.as_str()))
}

/// Why an approval of a request counts only once. `None` if it may stand.
pub fn once(tool: &str, private_agent: bool, undisclosed: &[String]) -> Option<OnceReason> {
    match private_agent {
        true => Some(OnceReason::PrivateAgent),
        false if tool == PLAN_TOOL => Some(OnceReason::Plan),
        false => hides_input(undisclosed).then_some(OnceReason::HiddenInput),
    }
}

/// The widest scope for a decision. A denial may always stand.
pub const fn widest(approved: bool, once: Option<OnceReason>) -> DecisionScope {
    if approved && once.is_some() { DecisionScope::Once } else { DecisionScope::Agent }
}

/// The standing answer to a request, if any. A denial beats every grant.
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

// === impl ApprovalDecision ===

impl ApprovalDecision {
    /// Whether it says nothing that the earlier one didn't.
    fn repeats(&self, before: &Self) -> bool {
        let comment = self.comment.as_ref().or(before.comment.as_ref());
        *before == Self { comment: comment.cloned(), ..self.clone() }
    }
}

// === impl ForwardingReason ===

impl ForwardingReason {
    pub const fn is_private(self) -> bool {
        matches!(self, Self::PrivateAgent)
    }
}

// === impl PermissionFacts ===

impl PermissionFacts<'_> {
    /// The same as a step of a run in this state: before its plan is approved, no standing approval answers.
    #[must_use]
    pub fn with_plan(self, plan: PlanState) -> Self {
        match plan {
            PlanState::Settled => self,
            PlanState::Open => Self { once: Some(OnceReason::Plan), ..self },
        }
    }
}

// === impl StandingGrant ===

impl StandingGrant {
    /// The grant that a decision creates. `None` if it was for once, only for a channel the request doesn't have, or
    /// can't reach further. `giver` is who decided, if they did so in person.
    pub fn of(
        id: GrantId,
        decision: &ApprovalDecision,
        giver: Option<UserId>,
        request: PermissionFacts<'_>,
    ) -> Option<Self> {
        if widest(decision.approved, request.once) == DecisionScope::Once {
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
        let ApprovalDecision { approved, until, .. } = *decision;
        Some(Self { id, approved, reach, what, channel, until, revoked: false, giver })
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
        reaches && is_meant && is_here && is_alive && (!self.approved || self.may_approve(request))
    }

    /// Whether it may approve such a request without a person. A denial always may answer.
    fn may_approve(&self, request: PermissionFacts<'_>) -> bool {
        let is_named = match &self.what {
            GrantPattern::Subject(_) => true,
            // Who approves any tool doesn't mean everything that some other agent could be told.
            GrantPattern::Tools(pattern) => !request.tool.starts_with(REMOTE_AGENT) || pattern == request.tool,
        };
        let is_entitled = request.in_person.is_none_or(|person| self.giver == Some(person));
        is_named && is_entitled && widest(true, request.once) != DecisionScope::Once
    }
}

/// Whether a tool's name matches a pattern in which `*` matches any characters.
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
    /// Every field is length-prefixed, so that no two subjects share an encoding.
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

    /// Includes the diff the person sees and what is hidden from them. Without either, the hash is unchanged.
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
    pub const fn decided(approved: bool) -> Self {
        if approved { Self::Approved } else { Self::Denied }
    }

    /// The result for the worker. `None` while undecided. Unanswered requests are denied.
    pub const fn approved(self) -> Option<bool> {
        match self {
            Self::Pending => None,
            Self::Approved => Some(true),
            Self::Denied | Self::Expired | Self::Cancelled => Some(false),
        }
    }
}
