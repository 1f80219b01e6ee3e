//! What the events of a task mean for a delegation. Pure: the same events are heard the same way, streamed or polled.

use attache_protocol::{
    DelegationId,
    secret::mask,
    wire::{
        a2a::{Artifact, Content, Message, Part, StreamResponse, Task, TaskState, TaskStatus},
        awcp::{self, ErrorCode, Unreadable},
        delegation::Failure,
    },
};

/// Something that the remote made known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::delegator) enum Heard {
    /// The remote's name for the task.
    Task(String),
    /// The task is there, and nobody works on it yet.
    Queued,
    Accept(Box<awcp::Accept>),
    Working,
    /// Words about the work, for people.
    Said(String),
    /// A piece of what is being written.
    Wrote(String),
    /// It waits for something that nobody here can give.
    Asks(String),
    Done(awcp::Done),
    Failed(Failure),
    /// The way to the remote is broken for now.
    Trouble(String),
    /// The conversation cannot go on, and the remote does not know that.
    Lost(Failure),
    /// The event tells of an end but not how it was; the task itself does.
    LookAgain,
}

/// Listens to one task.
#[derive(Debug)]
pub(super) struct Ear {
    delegation: DelegationId,
    task: Option<String>,
    done: Option<awcp::Done>,
    /// The last words, which a task that is asked repeats.
    said: Option<String>,
    is_lent: bool,
}

/// How complete what is heard from is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    Whole,
    Part,
}

const LONGEST: usize = 2000;

// === impl Ear ===

impl Ear {
    pub(super) const fn new(delegation: DelegationId) -> Self {
        Self { delegation, task: None, done: None, said: None, is_lent: false }
    }

    pub(super) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// The task's name is known from before.
    pub(super) fn know(&mut self, task: String) {
        self.task = Some(task);
    }

    /// START is out; what was said before it is no answer to it.
    pub(super) const fn lend(&mut self) {
        self.is_lent = true;
    }

    pub(super) fn hear(&mut self, event: StreamResponse) -> Vec<Heard> {
        match event {
            StreamResponse::Task(task) => self.hear_task(&task),
            StreamResponse::StatusUpdate(update) => {
                let mut heard = self.name(&update.task_id);
                heard.extend(self.hear_status(&update.status, View::Part));
                heard
            }
            StreamResponse::ArtifactUpdate(update) => {
                let mut heard = self.name(&update.task_id);
                heard.extend(self.hear_artifact(&update.artifact));
                heard
            }
            StreamResponse::Message(message) => vec![self.hear_message(&message)],
        }
    }

    pub(super) fn hear_task(&mut self, task: &Task) -> Vec<Heard> {
        let mut heard = self.name(&task.id);
        for artifact in task.artifacts.iter().flatten() {
            // What was written before is known already; only its last word counts.
            let _ = self.hear_artifact(artifact);
        }
        heard.extend(self.hear_status(&task.status, View::Whole));
        heard
    }

    fn name(&mut self, task: &str) -> Vec<Heard> {
        if self.task.as_deref() == Some(task) || task.is_empty() {
            return Vec::new();
        }
        self.task = Some(task.to_owned());
        vec![Heard::Task(task.to_owned())]
    }

    fn hear_artifact(&mut self, artifact: &Artifact) -> Vec<Heard> {
        if let Ok(awcp::Message::Done(done)) = awcp::Message::among(&artifact.parts)
            && self.is_mine(&done.delegation_id)
        {
            self.done = Some(done);
            return Vec::new();
        }
        let text: String = texts(&artifact.parts).collect();
        if text.is_empty() { Vec::new() } else { vec![Heard::Wrote(text)] }
    }

    /// A message in place of a task: nothing was taken on.
    fn hear_message(&self, message: &Message) -> Heard {
        if let Some(failure) = self.error(Some(message)) {
            return Heard::Failed(failure);
        }
        let said = said(Some(message)).map(|said| format!(": {said}")).unwrap_or_default();
        Heard::Failed(Failure {
            code: ErrorCode::Declined,
            message: format!("the remote answered with a message and took nothing on{said}"),
            hint: "Check that the agent understands AWCP: its card says so, its answer does not.".to_owned(),
        })
    }

    fn hear_status(&mut self, status: &TaskStatus, view: View) -> Vec<Heard> {
        let message = status.message.as_ref();
        match status.state {
            TaskState::TaskStateSubmitted => vec![Heard::Queued],
            TaskState::TaskStateWorking => {
                let mut heard = vec![Heard::Working];
                let news = said(message).filter(|said| self.said.as_ref() != Some(said));
                self.said = news.clone().or(self.said.take());
                heard.extend(news.map(Heard::Said));
                heard
            }
            TaskState::TaskStateInputRequired => self.hear_request(message),
            TaskState::TaskStateAuthRequired => {
                vec![Heard::Asks("the remote's owner, who has to allow a step there or sign in".to_owned())]
            }
            TaskState::TaskStateCompleted => self.hear_end(message, view),
            TaskState::TaskStateFailed => vec![self.hear_failure(ErrorCode::TaskFailed, message, view)],
            TaskState::TaskStateRejected => vec![self.hear_failure(ErrorCode::Declined, message, view)],
            TaskState::TaskStateCanceled => vec![self.hear_failure(ErrorCode::Cancelled, message, view)],
        }
    }

    fn hear_request(&self, message: Option<&Message>) -> Vec<Heard> {
        let parts = message.map_or(&[][..], |message| &message.parts);
        match awcp::Message::among(parts) {
            Ok(awcp::Message::Accept(accept)) if self.is_mine(&accept.delegation_id) => {
                // Until START is taken up, the task still shows what was answered before it.
                if self.is_lent { Vec::new() } else { vec![Heard::Accept(Box::new(accept))] }
            }
            Ok(other) => vec![Heard::Failed(nonsense(format!("{} of {}", other.kind(), other.delegation())))],
            Err(Unreadable::NoAwcp) => {
                let what = said(message).unwrap_or_else(|| "it did not say what".to_owned());
                vec![Heard::Asks(format!("something that the remote asks for: {what}"))]
            }
            Err(unreadable) => vec![Heard::Failed(nonsense(unreadable.to_string()))],
        }
    }

    fn hear_end(&mut self, message: Option<&Message>, view: View) -> Vec<Heard> {
        let parts = message.map_or(&[][..], |message| &message.parts);
        if let Ok(awcp::Message::Done(done)) = awcp::Message::among(parts)
            && self.is_mine(&done.delegation_id)
        {
            self.done = Some(done);
        }
        if let Some(done) = self.done.take() {
            return vec![Heard::Done(done)];
        }
        if view == View::Part {
            return vec![Heard::LookAgain];
        }
        if !self.is_lent {
            let said = said(message).map(|said| format!(": {said}")).unwrap_or_default();
            let message = format!("the remote ended the task without accepting the folder{said}");
            let hint = "Check that the agent understands AWCP: its card says so, its answer does not.".to_owned();
            return vec![Heard::Failed(Failure { code: ErrorCode::Declined, message, hint })];
        }
        let final_summary = said(message).unwrap_or_else(|| "The remote says that it is done, and no more.".to_owned());
        let delegation_id = self.delegation.to_string();
        let notes = Some("The remote sent no DONE.".to_owned());
        vec![Heard::Done(awcp::Done { delegation_id, final_summary, highlights: Vec::new(), notes, full_output: None })]
    }

    fn hear_failure(&self, code: ErrorCode, message: Option<&Message>, view: View) -> Heard {
        if let Some(failure) = self.error(message) {
            return Heard::Failed(failure);
        }
        if view == View::Part && message.is_none() {
            return Heard::LookAgain;
        }
        let message = said(message).unwrap_or_else(|| {
            let what = match code {
                ErrorCode::Declined => "the remote rejected the task and did not say why",
                ErrorCode::Cancelled => "the task was cancelled at the remote",
                _ => "the task failed at the remote, which did not say why",
            };
            what.to_owned()
        });
        Heard::Failed(Failure { code, message, hint: code.hint().to_owned() })
    }

    fn error(&self, message: Option<&Message>) -> Option<Failure> {
        match awcp::Message::among(&message?.parts) {
            Ok(awcp::Message::Error(error)) if self.is_mine(&error.delegation_id) => {
                let hint = if error.hint.is_empty() { error.code.hint().to_owned() } else { tidy(&error.hint) };
                Some(Failure { code: error.code, message: tidy(&error.message), hint })
            }
            _ => None,
        }
    }

    fn is_mine(&self, delegation: &str) -> bool {
        delegation.parse() == Ok(self.delegation)
    }
}

fn nonsense(what: String) -> Failure {
    Failure {
        code: ErrorCode::TaskFailed,
        message: format!("the remote said something that is out of place: {what}"),
        hint: "Ask its owner which version of AWCP it speaks.".to_owned(),
    }
}

fn texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
    })
}

fn said(message: Option<&Message>) -> Option<String> {
    let text: Vec<_> = texts(&message?.parts).collect();
    Some(tidy(&text.join(" "))).filter(|text| !text.is_empty())
}

/// A stranger's words: not endless, without control characters, and without what looks like a secret.
fn tidy(text: &str) -> String {
    let plain = |character: char| if character.is_control() && character != '\n' { ' ' } else { character };
    let line: String = text.chars().map(plain).collect();
    mask(line.trim()).chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests;
