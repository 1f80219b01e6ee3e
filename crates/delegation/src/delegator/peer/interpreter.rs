//! Interprets the events of the remote's task for a delegation. Pure: streamed and polled events give the same result.

use attache_a2a_wire::{Artifact, Message, Part, PartContent, StreamResponse, Task, TaskState, TaskStatus};
use attache_protocol::{
    DelegationId,
    secret::mask,
    wire::{
        awcp::{self, AwcpErrorCode, AwcpParseError},
        delegation::DelegationFailure,
    },
};

/// An event at the remote, or in the conversation with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RemoteEvent {
    /// The remote's id for the task.
    Task(String),
    /// The task exists, but the remote hasn't started it.
    Queued,
    Accept(Box<awcp::AwcpAccept>),
    Working,
    /// Status text for people.
    Message(String),
    /// A piece of streamed output.
    Chunk(String),
    /// The remote waits for something that this side can't provide.
    Question(String),
    Done(awcp::AwcpDone),
    Failed(DelegationFailure),
    /// The remote can't be reached for now.
    Unreachable(String),
    /// The conversation can't continue, and the remote doesn't know that.
    Lost(DelegationFailure),
    /// The event reports an end without details. Read the task to get them.
    ReadTask,
}

/// Follows one task.
#[derive(Debug)]
pub(super) struct TaskInterpreter {
    delegation: DelegationId,
    task: Option<String>,
    done: Option<awcp::AwcpDone>,
    /// The last status text, which every poll repeats.
    last_message: Option<String>,
    has_started: bool,
}

/// Whether the task is complete or only an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskCoverage {
    Whole,
    Part,
}

const MAX_TEXT: usize = 2000;

// === impl TaskInterpreter ===

impl TaskInterpreter {
    pub(super) const fn new(delegation: DelegationId) -> Self {
        Self { delegation, task: None, done: None, last_message: None, has_started: false }
    }

    pub(super) fn task(&self) -> Option<&str> {
        self.task.as_deref()
    }

    /// Sets the task's id, known from before.
    pub(super) fn set_task(&mut self, task: String) {
        self.task = Some(task);
    }

    /// START was sent. Earlier answers don't count any more.
    pub(super) const fn mark_started(&mut self) {
        self.has_started = true;
    }

    pub(super) fn interpret(&mut self, event: StreamResponse) -> Vec<RemoteEvent> {
        match event {
            StreamResponse::Task(task) => self.on_task(&task),
            StreamResponse::StatusUpdate(update) => {
                let mut events = self.name(&update.task_id);
                events.extend(self.on_status(&update.status, TaskCoverage::Part));
                events
            }
            StreamResponse::ArtifactUpdate(update) => {
                let mut events = self.name(&update.task_id);
                events.extend(self.on_artifact(&update.artifact));
                events
            }
            StreamResponse::Message(message) => vec![self.on_message(&message)],
        }
    }

    pub(super) fn on_task(&mut self, task: &Task) -> Vec<RemoteEvent> {
        let mut events = self.name(&task.id);
        for artifact in task.artifacts.iter().flatten() {
            // Earlier output is already known. Only a DONE in it counts.
            let _ = self.on_artifact(artifact);
        }
        events.extend(self.on_status(&task.status, TaskCoverage::Whole));
        events
    }

    fn name(&mut self, task: &str) -> Vec<RemoteEvent> {
        if self.task.as_deref() == Some(task) || task.is_empty() {
            return Vec::new();
        }
        self.task = Some(task.to_owned());
        vec![RemoteEvent::Task(task.to_owned())]
    }

    fn on_artifact(&mut self, artifact: &Artifact) -> Vec<RemoteEvent> {
        if let Ok(awcp::AwcpMessage::Done(done)) = awcp::AwcpMessage::among(&artifact.parts)
            && self.is_mine(&done.delegation_id)
        {
            self.done = Some(done);
            return Vec::new();
        }
        let text: String = texts(&artifact.parts).collect();
        if text.is_empty() { Vec::new() } else { vec![RemoteEvent::Chunk(text)] }
    }

    /// A message instead of a task: the remote did not accept the task.
    fn on_message(&self, message: &Message) -> RemoteEvent {
        if let Some(failure) = self.error(Some(message)) {
            return RemoteEvent::Failed(failure);
        }
        let text = message_text(Some(message)).map(|text| format!(": {text}")).unwrap_or_default();
        RemoteEvent::Failed(DelegationFailure {
            code: AwcpErrorCode::Declined,
            message: format!("the remote answered with a message instead of starting the task{text}"),
            hint: "Check that the agent supports AWCP: its card says so, but its answer doesn't follow it.".to_owned(),
        })
    }

    fn on_status(&mut self, status: &TaskStatus, view: TaskCoverage) -> Vec<RemoteEvent> {
        let message = status.message.as_ref();
        match status.state {
            TaskState::TaskStateSubmitted => vec![RemoteEvent::Queued],
            TaskState::TaskStateWorking => {
                let mut events = vec![RemoteEvent::Working];
                let news = message_text(message).filter(|text| self.last_message.as_ref() != Some(text));
                self.last_message = news.clone().or(self.last_message.take());
                events.extend(news.map(RemoteEvent::Message));
                events
            }
            TaskState::TaskStateInputRequired => self.on_request(message),
            TaskState::TaskStateAuthRequired => {
                vec![RemoteEvent::Question("the remote's owner to approve a step or sign in".to_owned())]
            }
            TaskState::TaskStateCompleted => self.on_end(message, view),
            TaskState::TaskStateFailed => vec![self.on_failure(AwcpErrorCode::TaskFailed, message, view)],
            TaskState::TaskStateRejected => vec![self.on_failure(AwcpErrorCode::Declined, message, view)],
            TaskState::TaskStateCanceled => vec![self.on_failure(AwcpErrorCode::Cancelled, message, view)],
        }
    }

    fn on_request(&self, message: Option<&Message>) -> Vec<RemoteEvent> {
        let parts = message.map_or(&[][..], |message| &message.parts);
        match awcp::AwcpMessage::among(parts) {
            Ok(awcp::AwcpMessage::Accept(accept)) if self.is_mine(&accept.delegation_id) => {
                // Until the remote handles START, the task still shows its earlier answer.
                if self.has_started { Vec::new() } else { vec![RemoteEvent::Accept(Box::new(accept))] }
            }
            Ok(other) => {
                vec![RemoteEvent::Failed(invalid_message(format!("{} of {}", other.kind(), other.delegation())))]
            }
            Err(AwcpParseError::NoAwcp) => {
                let question = message_text(message).unwrap_or_else(|| "it didn't say what".to_owned());
                vec![RemoteEvent::Question(format!("something the remote asks for: {question}"))]
            }
            Err(unreadable) => vec![RemoteEvent::Failed(invalid_message(unreadable.to_string()))],
        }
    }

    fn on_end(&mut self, message: Option<&Message>, view: TaskCoverage) -> Vec<RemoteEvent> {
        let parts = message.map_or(&[][..], |message| &message.parts);
        if let Ok(awcp::AwcpMessage::Done(done)) = awcp::AwcpMessage::among(parts)
            && self.is_mine(&done.delegation_id)
        {
            self.done = Some(done);
        }
        if let Some(done) = self.done.take() {
            return vec![RemoteEvent::Done(done)];
        }
        if view == TaskCoverage::Part {
            return vec![RemoteEvent::ReadTask];
        }
        if !self.has_started {
            let text = message_text(message).map(|text| format!(": {text}")).unwrap_or_default();
            let message = format!("the remote ended the task without accepting the folder{text}");
            let hint =
                "Check that the agent supports AWCP: its card says so, but its answer doesn't follow it.".to_owned();
            return vec![RemoteEvent::Failed(DelegationFailure { code: AwcpErrorCode::Declined, message, hint })];
        }
        let final_summary =
            message_text(message).unwrap_or_else(|| "The remote reported success without a summary.".to_owned());
        let delegation_id = self.delegation.to_string();
        let notes = Some("The remote sent no DONE.".to_owned());
        vec![RemoteEvent::Done(awcp::AwcpDone {
            delegation_id,
            final_summary,
            highlights: Vec::new(),
            notes,
            full_output: None,
        })]
    }

    fn on_failure(&self, code: AwcpErrorCode, message: Option<&Message>, view: TaskCoverage) -> RemoteEvent {
        if let Some(failure) = self.error(message) {
            return RemoteEvent::Failed(failure);
        }
        if view == TaskCoverage::Part && message.is_none() {
            return RemoteEvent::ReadTask;
        }
        let message = message_text(message).unwrap_or_else(|| {
            let text = match code {
                AwcpErrorCode::Declined => "the remote rejected the task without a reason",
                AwcpErrorCode::Cancelled => "the task was cancelled at the remote",
                _ => "the task failed at the remote without a reason",
            };
            text.to_owned()
        });
        RemoteEvent::Failed(DelegationFailure { code, message, hint: code.hint().to_owned() })
    }

    fn error(&self, message: Option<&Message>) -> Option<DelegationFailure> {
        match awcp::AwcpMessage::among(&message?.parts) {
            Ok(awcp::AwcpMessage::Error(error)) if self.is_mine(&error.delegation_id) => {
                let hint = if error.hint.is_empty() { error.code.hint().to_owned() } else { tidy(&error.hint) };
                Some(DelegationFailure { code: error.code, message: tidy(&error.message), hint })
            }
            _ => None,
        }
    }

    fn is_mine(&self, delegation: &str) -> bool {
        delegation.parse() == Ok(self.delegation)
    }
}

fn invalid_message(what: String) -> DelegationFailure {
    DelegationFailure {
        code: AwcpErrorCode::TaskFailed,
        message: format!("unexpected message from the remote: {what}"),
        hint: "Ask its owner which version of AWCP it supports.".to_owned(),
    }
}

fn texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match &part.content {
        PartContent::Text(text) => Some(text.as_str()),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    })
}

fn message_text(message: Option<&Message>) -> Option<String> {
    let text: Vec<_> = texts(&message?.parts).collect();
    Some(tidy(&text.join(" "))).filter(|text| !text.is_empty())
}

/// Cleans up untrusted text: bounded, without control characters, and with secrets masked.
fn tidy(text: &str) -> String {
    let plain = |character: char| if character.is_control() && character != '\n' { ' ' } else { character };
    let line: String = text.chars().map(plain).collect();
    mask(line.trim()).chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests;
