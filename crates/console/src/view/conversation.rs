//! A conversation as a row of the list, and its turns: messages of people, and runs with the agent's answer.

use attache_protocol::{
    rules::run::RunStatus,
    wire::{conversation::ConversationMessage, run::Run},
};

use super::{
    callsign,
    escape_stripper::{excerpt, plain},
    failure,
    html::Markup,
    log::{LogItem, LogItemKind},
    permission::ApprovalCard,
    question::QuestionCard,
    recovery,
    run::{RunPageDetail, ViewContext, task_files},
    status::StatusBadge,
    time::TimeElement,
    tool_input::head,
};

#[derive(Debug)]
pub(crate) struct ConversationListRow {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) sign: Markup,
    pub(crate) agent: String,
    pub(crate) status: StatusBadge,
    /// The newest thing that was said.
    pub(crate) last: String,
    pub(crate) at: TimeElement,
}

#[derive(Debug)]
pub(crate) enum ConversationTurn {
    Message(ConversationMessageView),
    Run(Box<RunTurn>),
}

/// A message written by a person or agent.
#[derive(Debug)]
pub(crate) struct ConversationMessageView {
    pub(crate) who: String,
    pub(crate) text: String,
    pub(crate) files: Vec<String>,
    pub(crate) at: TimeElement,
}

/// A task and the agent's work on it.
#[derive(Debug)]
pub(crate) struct RunTurn {
    pub(crate) asked: ConversationMessageView,
    pub(crate) run: RunPageDetail,
    pub(crate) items: Vec<LogItem>,
    /// The seq of the newest event among the items.
    pub(crate) after: i64,
    /// The log has more than is shown here.
    pub(crate) is_cut: bool,
    pub(crate) cards: Vec<ApprovalCard>,
    pub(crate) question: Option<QuestionCard>,
    /// What the agent was told while it worked, but didn't get before it ended.
    pub(crate) undelivered: Vec<UndeliveredMessage>,
    pub(crate) at: TimeElement,
}

/// A message that can be sent again, once.
#[derive(Debug)]
pub(crate) struct UndeliveredMessage {
    pub(crate) text: String,
    /// The same message again is the same run.
    pub(crate) key: String,
}

// === impl ConversationListRow ===

impl ConversationListRow {
    /// `newest` is the conversation's newest run.
    pub(crate) fn new(newest: &Run, title: String, view_context: ViewContext<'_>) -> Self {
        let t = view_context.t;
        let result = |member| newest.task_result.as_ref().and_then(|result| result.text_member(member));
        let last = match newest.status {
            RunStatus::Pending | RunStatus::Running => String::new(),
            RunStatus::Completed => head(&plain(&result("text").unwrap_or_default())),
            RunStatus::Failed => failure::explain(&result("code").unwrap_or_default(), t).0.to_owned(),
            RunStatus::Cancelled => t.fail_cancelled.to_owned(),
        };
        Self {
            id: newest.conversation_id.to_string(),
            title,
            sign: callsign::big(newest.agent_id),
            agent: newest.agent_name.clone(),
            status: recovery::status(newest, t),
            last,
            at: TimeElement::clock(newest.ended_at.unwrap_or(newest.created_at)),
        }
    }
}

// === impl ConversationMessageView ===

impl ConversationMessageView {
    pub(crate) fn new(message: &ConversationMessage, view_context: ViewContext<'_>) -> Self {
        let text = excerpt(plain(&message.text), view_context.t);
        let at = TimeElement::clock(message.created_at);
        Self { who: view_context.caller(&message.author).who, text, files: Vec::new(), at }
    }

    /// The task of a run, as what its caller wrote.
    pub(crate) fn task(run: &Run, detail: &RunPageDetail) -> Self {
        Self {
            who: detail.caller.who.clone(),
            text: detail.task.clone(),
            files: task_files(run),
            at: TimeElement::clock(run.created_at),
        }
    }
}

// === impl RunTurn ===

impl RunTurn {
    pub(crate) fn call_count(&self) -> u64 {
        let calls = self.items.iter().filter(|item| item.kind == LogItemKind::Call).count();
        u64::try_from(calls).unwrap_or(u64::MAX)
    }
}
