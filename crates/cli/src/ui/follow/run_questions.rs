//! Open questions of a followed run: how they are shown, the commands that answer them, and answers typed at the
//! terminal.

use std::collections::VecDeque;

use attache_client::HubClient;
use attache_protocol::{
    EventKind, Json, PermissionId, RunId, WorkerRequestId,
    rules::permission::{DecisionScope, DecisionSource, PermissionState},
    wire::{
        event::Event,
        permission::{DecisionRequest, PermissionRequest, without_input},
    },
};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::{
    text::{ask as texts, terms},
    ui::{
        names::DisplayNames,
        output::{TextStyle, clean},
        tool_input::{self, ToolInput},
    },
};

/// The open questions of one run.
#[derive(Debug)]
pub(crate) struct RunQuestions {
    /// Options to add to suggested commands.
    pub(crate) suffix: String,
    /// A person at the terminal can type answers.
    pub(crate) may_type: bool,
    /// The latest permission request.
    asked: Option<RequestSummary>,
    /// Unanswered questions, oldest first. A typed line answers the first one.
    open: VecDeque<TerminalQuestion>,
    /// The first question is on the screen.
    shown: bool,
    lines: Option<Lines<BufReader<Stdin>>>,
    /// Display names of people who decided.
    names: DisplayNames,
    /// The latest call to a private agent, if this person may see it. Its event doesn't say what is asked.
    private_call: Option<PermissionRequest>,
}

/// A permission request in one line.
#[derive(Debug, Default)]
struct RequestSummary {
    tool: String,
    brief: String,
    /// Only someone else sees and decides it.
    hidden: bool,
}

/// A question that a person at the terminal can answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TerminalQuestion {
    Input { id: Option<WorkerRequestId>, prompt: String },
    Approval(PermissionId),
}

/// A person's typed answer to an approval request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TypedDecision {
    Decided(DecisionRequest),
    /// Not a valid answer.
    Unclear,
}

/// A message for the terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TerminalMessage {
    pub(crate) style: TextStyle,
    pub(crate) text: String,
    /// New text of the status line.
    pub(crate) line: Option<&'static str>,
}

/// The members of event data that are used; the rest is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct QuestionEventData {
    kind: Option<String>,
    permission_request_id: Option<PermissionId>,
    tool: Option<String>,
    input: Option<Json>,
    /// A call to a private agent, without its input.
    private: bool,
    undisclosed: Vec<String>,
    reason: Option<String>,
    paths: Vec<String>,
    state: Option<PermissionState>,
    source: Option<DecisionSource>,
    by: Option<String>,
    comment: Option<String>,
    waiting: Option<String>,
    prompt: Option<String>,
    input_request_id: Option<WorkerRequestId>,
}

// === impl RunQuestions ===

impl RunQuestions {
    pub(crate) fn new() -> Self {
        Self {
            suffix: String::new(),
            may_type: false,
            asked: None,
            open: VecDeque::new(),
            shown: false,
            lines: None,
            names: DisplayNames::default(),
            private_call: None,
        }
    }

    /// Looks up what the event doesn't contain: the display name of the person who decided, and a call to a private agent.
    pub(crate) async fn load_details(&mut self, hub: &HubClient, event: &Event) {
        if event.kind == EventKind::PermissionDecided {
            let by = event.data.parse::<QuestionEventData>().unwrap_or_default().by;
            self.names = DisplayNames::of(hub, by).await;
        }
        if event.kind == EventKind::PermissionRequested {
            let QuestionEventData { private, permission_request_id, .. } = event.data.parse().unwrap_or_default();
            self.private_call = match permission_request_id.filter(|_| private) {
                Some(id) => hub.permission(id).await.ok(),
                None => None,
            };
        }
    }

    /// Returns a message if the event is about a question or its answer.
    pub(crate) fn take(&mut self, run: RunId, event: &Event) -> Option<TerminalMessage> {
        let data = || event.data.parse::<QuestionEventData>().unwrap_or_default();
        let said = |style, text, line| Some(TerminalMessage { style, text, line });
        match event.event_kind() {
            Some(EventKind::PermissionRequested) => {
                let QuestionEventData { tool, input, private, undisclosed, reason, paths, .. } = data();
                let tool = tool.unwrap_or_default();
                if private {
                    let seen = self.private_call.as_ref().map(tool_input::request_summary);
                    let hidden = seen.is_none();
                    let brief = seen.unwrap_or_else(|| texts::private_call().to_owned());
                    self.asked = Some(RequestSummary { tool, brief, hidden });
                    return None;
                }
                let brief = input.map_or_else(String::new, |input| {
                    let known = without_input(&input, &undisclosed, reason.as_deref(), &paths);
                    known.unwrap_or_else(|| ToolInput::new(&input).summary())
                });
                self.asked = Some(RequestSummary { tool, brief, hidden: false });
                None
            }
            Some(EventKind::ActionRequired) => {
                let QuestionEventData { kind, permission_request_id, .. } = data();
                if kind.as_deref() != Some("approval") {
                    return None;
                }
                let RequestSummary { tool, brief, hidden } = self.asked.take().unwrap_or_default();
                let mut text = texts::waiting_for_approval(clean::exact_line(&tool), clean::exact_line(&brief));
                match permission_request_id.filter(|_| !hidden) {
                    Some(id) if self.may_type => self.ask(TerminalQuestion::Approval(id)),
                    Some(id) => text = format!("{text}\n{}", self.commands(id)),
                    None => {}
                }
                said(TextStyle::Busy, text, Some(texts::status_approval()))
            }
            Some(EventKind::PermissionDecided) => {
                let QuestionEventData { permission_request_id, state, source, by, comment, .. } = data();
                self.remove_answered(
                    |question| matches!(question, TerminalQuestion::Approval(id) if Some(*id) == permission_request_id),
                );
                let by = by.map_or_else(|| terms::someone().to_owned(), |by| self.names.get(by));
                let comment = comment.map(|comment| clean::exact_line(&comment).into_owned());
                match (state?, source) {
                    // A standing grant or the agent's settings answered immediately.
                    (_, Some(DecisionSource::Policy | DecisionSource::Mode)) => None,
                    (PermissionState::Approved, _) => {
                        let text = match comment {
                            Some(comment) => texts::approved_because(by, comment),
                            None => texts::approved_by(by),
                        };
                        said(TextStyle::Dim, text, None)
                    }
                    (PermissionState::Denied, _) => {
                        let text = match comment {
                            Some(comment) => texts::denied_because(by, comment),
                            None => texts::denied_by(by),
                        };
                        said(TextStyle::Bad, text, None)
                    }
                    (PermissionState::Expired, _) => said(TextStyle::Bad, texts::denied_late().to_owned(), None),
                    (PermissionState::Pending | PermissionState::Cancelled, _) => None,
                }
            }
            Some(EventKind::TaskInputRequired) => {
                let QuestionEventData { prompt, input_request_id, .. } = data();
                let prompt = prompt.unwrap_or_default();
                if self.may_type {
                    self.ask(TerminalQuestion::Input { id: input_request_id, prompt });
                    return said(TextStyle::Dim, String::new(), Some(texts::status_input()));
                }
                let text = texts::asks_elsewhere(clean::exact(&prompt), run, &self.suffix);
                said(TextStyle::Busy, text, Some(texts::status_input()))
            }
            Some(EventKind::TaskAuthorizationRequired) => {
                let prompt = data().prompt.unwrap_or_default();
                let text = texts::authorize(clean::exact(&prompt), run, &self.suffix);
                said(TextStyle::Busy, text, Some(texts::status_authorization()))
            }
            Some(EventKind::TaskInputReceived) => {
                let answered = data().input_request_id;
                self.remove_answered(
                    |question| matches!(question, TerminalQuestion::Input { id, .. } if *id == answered),
                );
                None
            }
            Some(EventKind::TaskWaiting) if data().waiting.is_none() => {
                said(TextStyle::Dim, String::new(), Some(texts::status_running()))
            }
            Some(EventKind::TaskRequeued | EventKind::TaskDeferred) => {
                self.open.clear();
                self.shown = false;
                None
            }
            _ => None,
        }
    }

    /// The commands that decide an approval request.
    fn commands(&self, id: PermissionId) -> String {
        texts::decide_with(id, &self.suffix)
    }

    fn ask(&mut self, question: TerminalQuestion) {
        if !self.open.contains(&question) {
            self.open.push_back(question);
        }
    }

    /// Removes a question that was answered, here or elsewhere.
    fn remove_answered(&mut self, is_it: impl Fn(&TerminalQuestion) -> bool) {
        if self.open.front().is_some_and(&is_it) {
            self.shown = false;
        }
        self.open.retain(|question| !is_it(question));
    }

    /// The question to show now. One at a time, so that an answer is unambiguous.
    pub(crate) fn next_question(&mut self) -> Option<TerminalQuestion> {
        if self.shown || !self.may_type {
            return None;
        }
        let question = self.open.front()?.clone();
        self.shown = true;
        Some(question)
    }

    /// Discards input typed before the question was on the screen.
    pub(crate) fn forget_typed() {
        let _ = rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush);
    }

    /// The next line typed while a question is on the screen. Pending while there is no question; `None` at the end of
    /// input.
    pub(crate) async fn next_answer(&mut self) -> Option<(TerminalQuestion, String)> {
        if !self.may_type || !self.shown {
            return std::future::pending().await;
        }
        let lines = self.lines.get_or_insert_with(|| BufReader::new(tokio::io::stdin()).lines());
        loop {
            let line = lines.next_line().await.ok().flatten()?;
            if !line.trim().is_empty() {
                return Some((self.open.front()?.clone(), line));
            }
        }
    }

    /// Marks the question as answered, so that the next one can be shown.
    pub(crate) fn answered(&mut self, question: &TerminalQuestion) {
        self.remove_answered(|open| open == question);
    }

    /// After the end of input: the commands that answer the open questions.
    pub(crate) fn suggest_commands(&mut self, run: RunId) -> Vec<String> {
        self.may_type = false;
        let open = std::mem::take(&mut self.open);
        let elsewhere = |question| match question {
            TerminalQuestion::Input { .. } => texts::answer_it(run, &self.suffix),
            TerminalQuestion::Approval(id) => self.commands(id),
        };
        open.into_iter().map(elsewhere).collect()
    }
}

/// The full approval request and how to answer it here.
pub(crate) fn approval_text(request: &PermissionRequest) -> String {
    let mut lines = vec![texts::wants_tool(clean::line(&request.agent_name), clean::exact_line(&request.tool))];
    let indented = |text: &str| clean::exact(text).lines().map(|line| format!("    {line}")).collect::<Vec<_>>();
    for (name, text) in tool_input::sections(request) {
        lines.push(texts::part(clean::exact_line(&name)));
        lines.extend(indented(&text));
    }
    if let Some(diff) = &request.diff {
        lines.push(texts::proposed().to_owned());
        lines.extend(indented(diff));
    }
    if let Some(cwd) = &request.cwd {
        lines.push(texts::in_folder(clean::exact_line(cwd)));
    }
    if let Some(risk) = &request.risk {
        lines.push(texts::risk(clean::exact_line(risk)));
    }
    if let Some(reason) = &request.reason {
        lines.push(texts::reason(clean::exact_line(reason)));
    }
    if !request.undisclosed.is_empty() {
        lines.push(texts::undisclosed(clean::exact_line(&request.undisclosed.join(", "))));
    }
    let how = if request.once.is_none() { texts::type_a_r_or_d() } else { texts::type_a_or_d() };
    lines.push(how.to_owned());
    lines.join("\n")
}

// === impl TypedDecision ===

impl TypedDecision {
    pub(crate) fn read(line: &str) -> Self {
        let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
        let (approved, scope) = match word.to_lowercase().as_str() {
            "a" | "allow" | "y" | "yes" => (true, DecisionScope::Once),
            "r" | "run" => (true, DecisionScope::Run),
            "d" | "deny" | "n" | "no" => (false, DecisionScope::Once),
            _ => return Self::Unclear,
        };
        let comment = Some(rest.trim().to_owned()).filter(|text| !text.is_empty());
        Self::Decided(DecisionRequest {
            approved,
            scope,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_decides() {
        let read = |line: &str| match TypedDecision::read(line) {
            TypedDecision::Decided(decision) => Some((decision.approved, decision.scope, decision.comment)),
            TypedDecision::Unclear => None,
        };
        assert_eq!(read("a"), Some((true, DecisionScope::Once, None)));
        assert_eq!(read(" Allow "), Some((true, DecisionScope::Once, None)));
        assert_eq!(read("r"), Some((true, DecisionScope::Run, None)));
        assert_eq!(read("d move it instead"), Some((false, DecisionScope::Once, Some("move it instead".to_owned()))));
        for unclear in ["", "ok", "allowed", "1", "always"] {
            assert_eq!(read(unclear), None, "{unclear}");
        }
    }
}
