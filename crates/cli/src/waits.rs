//! What a run that is followed waits for: the words for it, the command that lets it go on, and what a person types.

use attache_protocol::{
    Json, RunId,
    rules::permission::{Source, State},
    wire::{event::Event, permission::without_input},
};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use crate::{
    asked::Asked,
    output::{Style, clean},
};

/// The questions of one run.
#[derive(Debug)]
pub(crate) struct Waits {
    /// What is added to the commands that are suggested.
    pub(crate) suffix: String,
    /// A person sits at the terminal.
    pub(crate) may_type: bool,
    /// What the permission request that was asked last is about.
    asked: Option<(String, String)>,
    /// The input request that a line would answer.
    question: Option<String>,
    lines: Option<Lines<BufReader<Stdin>>>,
}

/// What to tell a person.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) style: Style,
    pub(crate) text: String,
    /// What the run does from now on.
    pub(crate) line: Option<&'static str>,
}

/// The members that we read; everything else is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    kind: Option<String>,
    permission_request_id: Option<String>,
    tool: Option<String>,
    input: Option<Json>,
    undisclosed: Vec<String>,
    reason: Option<String>,
    paths: Vec<String>,
    state: Option<State>,
    source: Option<Source>,
    by: Option<String>,
    comment: Option<String>,
    waiting: Option<String>,
    prompt: Option<String>,
    input_request_id: Option<String>,
}

// === impl Waits ===

impl Waits {
    pub(crate) const fn new() -> Self {
        Self { suffix: String::new(), may_type: false, asked: None, question: None, lines: None }
    }

    /// Words for an event, if it is about waiting.
    pub(crate) fn take(&mut self, run: RunId, event: &Event) -> Option<Said> {
        let data = || event.data.parse::<Data>().unwrap_or_default();
        let said = |style, text, line| Some(Said { style, text, line });
        match event.kind.as_str() {
            "permission.requested" => {
                let Data { tool, input, undisclosed, reason, paths, .. } = data();
                let brief = input.map_or_else(String::new, |input| {
                    let known = without_input(&input, &undisclosed, reason.as_deref(), &paths);
                    known.unwrap_or_else(|| Asked::new(&input).brief())
                });
                self.asked = Some((tool.unwrap_or_default(), brief));
                None
            }
            "action.required" => {
                let Data { kind, permission_request_id, .. } = data();
                if kind.as_deref() != Some("approval") {
                    return None;
                }
                let (tool, brief) = self.asked.take().unwrap_or_default();
                let id = clean::line(permission_request_id.as_deref().unwrap_or("ID")).into_owned();
                let suffix = &self.suffix;
                let text = format!(
                    "waits for approval of {}: {}\n  allow it: attache approvals approve {id}{suffix}\n  see it:   attache approvals show {id}{suffix}",
                    clean::exact_line(&tool),
                    clean::exact_line(&brief),
                );
                said(Style::Busy, text, Some("waits for approval"))
            }
            "permission.decided" => {
                let Data { state, source, by, comment, .. } = data();
                let by = clean::line(by.as_deref().unwrap_or("somebody")).into_owned();
                let comment = comment.map(|comment| format!(": {}", clean::exact_line(&comment))).unwrap_or_default();
                match (state?, source) {
                    // A standing grant answered; nobody waited.
                    (_, Some(Source::Policy)) => None,
                    (State::Approved, _) => said(Style::Dim, format!("approved by {by}{comment}"), None),
                    (State::Denied, _) => said(Style::Bad, format!("denied by {by}{comment}"), None),
                    (State::Expired, _) => said(Style::Bad, "nobody answered in time: denied".to_owned(), None),
                    (State::Pending | State::Cancelled, _) => None,
                }
            }
            "task.input_required" => {
                let Data { prompt, input_request_id, .. } = data();
                let prompt = prompt.unwrap_or_default();
                self.question = input_request_id;
                let how = if self.may_type {
                    forget_typed();
                    "  type your answer and press Enter:".to_owned()
                } else {
                    format!("  answer it: attache runs input {run} \"…\"{}", self.suffix)
                };
                said(Style::Busy, format!("asks for input: {}\n{how}", clean::exact(&prompt)), Some("waits for input"))
            }
            "task.authorization_required" => {
                let (prompt, suffix) = (data().prompt, &self.suffix);
                let text = format!(
                    "{}\n  tell it something meanwhile: attache runs input {run} \"…\"{suffix}",
                    clean::exact(&prompt.unwrap_or_default())
                );
                said(Style::Busy, text, Some("waits to be authorized"))
            }
            "task.input_received" => {
                if data().input_request_id == self.question {
                    self.question = None;
                }
                None
            }
            "task.waiting" if data().waiting.is_none() => said(Style::Dim, String::new(), Some("running")),
            "task.requeued" => {
                self.question = None;
                None
            }
            _ => None,
        }
    }

    /// The next line that a person types while a question is open; never otherwise. `None` when there will be no more.
    pub(crate) async fn typed(&mut self) -> Option<String> {
        if !self.may_type || self.question.is_none() {
            return std::future::pending().await;
        }
        let lines = self.lines.get_or_insert_with(|| BufReader::new(tokio::io::stdin()).lines());
        loop {
            let line = lines.next_line().await.ok().flatten()?;
            if !line.trim().is_empty() {
                self.question = None;
                return Some(line);
            }
        }
    }
}

/// What was typed before the question cannot be its answer.
fn forget_typed() {
    let _ = rustix::termios::tcflush(rustix::stdio::stdin(), rustix::termios::QueueSelector::IFlush);
}
