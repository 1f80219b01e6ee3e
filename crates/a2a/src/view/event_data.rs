//! The data of run events, as far as a task shows it.

use attache_a2a_wire::{A2aRole, Artifact, Message, Part, PartContent, TaskState};
use attache_protocol::{
    EventKind, Json,
    rules::run::RunStatus,
    wire::run::{Run, WaitReason},
};
use serde::Deserialize;

use super::TaskReader;

/// A caller's message, as A2A shows it.
pub(super) struct CallerMessage {
    pub(super) context: String,
    pub(super) message: Message,
}

#[derive(Deserialize)]
struct RunInputData {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    message: Option<Json>,
}

#[derive(Deserialize)]
pub(super) struct ProgressData {
    pub(super) message: Option<String>,
    pub(super) percent: Option<Json>,
}

/// A chunk, a thought, or a log line.
#[derive(Deserialize)]
pub(super) struct TextData {
    #[serde(default, alias = "message")]
    pub(super) text: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct PermissionRequestedView {
    pub(super) permission_request_id: String,
    tool: String,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct PermissionDecidedView {
    pub(super) permission_request_id: String,
}

#[derive(Deserialize)]
pub(super) struct InputRequiredView {
    pub(super) input_request_id: String,
    prompt: String,
    #[serde(default)]
    parts: Option<Json>,
}

#[derive(Deserialize)]
pub(super) struct InputWithdrawnView {
    pub(super) input_request_id: String,
}

#[derive(Deserialize)]
pub(super) struct InputReceivedView {
    input_id: String,
    #[serde(default)]
    pub(super) input_request_id: Option<String>,
    parts: Json,
    /// The message that contained it, if any.
    #[serde(default)]
    message: Option<Json>,
}

#[derive(Deserialize)]
pub(super) struct WaitingView {
    pub(super) waiting: Option<WaitReason>,
}

#[derive(Deserialize)]
pub(super) struct RunEndedView {
    #[serde(default)]
    pub(super) output: Option<Json>,
    #[serde(default)]
    pub(super) usage: Option<Json>,
}

/// The message that created the run. A run not created through A2A is shown as if its text had been sent. The context
/// has the caller's name for it.
pub(super) fn asked(run: &Run) -> CallerMessage {
    let id = run.task_run_id.to_string();
    let input: Option<RunInputData> = run.input.parse().ok();
    let (text, message) = input.map_or((None, None), |input| (input.text, input.message));
    let message = message.and_then(|message| message.parse::<Message>().ok()).unwrap_or_else(|| {
        let part = match text {
            Some(text) => Part::text(text),
            None => Part::data(run.input.clone()),
        };
        Message::new(id.clone(), A2aRole::User, vec![part])
    });
    let context = message.context_id.clone().unwrap_or_else(|| run.conversation_id.to_string());
    let message = Message { task_id: Some(id), context_id: Some(context.clone()), ..message };
    CallerMessage { context, message }
}

pub(super) fn artifact(id: &str, name: Option<String>, parts: Vec<Part>) -> Artifact {
    let artifact_id = id.to_owned();
    Artifact { artifact_id, name, description: None, parts, metadata: None, extensions: Vec::new() }
}

/// The text, if there is nothing else.
pub(super) fn plain_text(parts: &[Part]) -> Option<&str> {
    match parts {
        [Part { content: PartContent::Text(text), filename: None, media_type: None, metadata: None }] => Some(text),
        _ => None,
    }
}

/// An empty text after a text only marks the end.
pub(super) fn append(parts: &mut Vec<Part>, piece: &Part) {
    let is_after_text = parts.last().is_some_and(|last| plain_text(std::slice::from_ref(last)).is_some());
    if !is_after_text || plain_text(std::slice::from_ref(piece)) != Some("") {
        parts.push(piece.clone());
    }
}

/// Text is appended to text. Anything else is a part of its own.
pub(super) fn go_on(parts: &mut Vec<Part>, piece: &Part) {
    let last = parts.last_mut().filter(|last| plain_text(std::slice::from_ref(*last)).is_some());
    match (last.map(|last| &mut last.content), plain_text(std::slice::from_ref(piece))) {
        (Some(PartContent::Text(text)), Some(more)) => text.push_str(more),
        _ => parts.push(piece.clone()),
    }
}

/// The length of a text in JSON.
pub(super) fn written(text: &str) -> usize {
    let of = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(of).sum()
}

pub(super) const fn waiting(waiting: WaitReason) -> TaskState {
    match waiting {
        WaitReason::Input => TaskState::TaskStateInputRequired,
        WaitReason::Approval => TaskState::TaskStateAuthRequired,
    }
}

/// The state of a run that hasn't ended.
pub(super) const fn state(run: &Run) -> TaskState {
    match (run.status, run.waiting) {
        (RunStatus::Pending, _) => TaskState::TaskStateSubmitted,
        (_, Some(wait)) => waiting(wait),
        (_, None) => TaskState::TaskStateWorking,
    }
}

/// The event that ended such a run.
pub(super) const fn ending(status: RunStatus) -> EventKind {
    match status {
        RunStatus::Completed => EventKind::TaskCompleted,
        RunStatus::Failed => EventKind::TaskFailed,
        RunStatus::Pending | RunStatus::Running | RunStatus::Cancelled => EventKind::TaskCancelled,
    }
}

// === impl PermissionRequestedView ===

impl PermissionRequestedView {
    /// A sentence for people and, for programs, the original request and the decision URL. Neither is a grant: a person
    /// decides in the console or through the hub's API. A caller without a credential learns nothing of the step.
    pub(super) fn parts(&self, request: &Json, reader: &TaskReader) -> Vec<Part> {
        if reader.is_anonymous {
            return vec![Part::text("A person must approve a step before the task continues".to_owned())];
        }
        let why = self.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let text = format!("A person must approve `{}` before the task continues{why}", self.tool);
        let url = format!("{}/approvals/{}", reader.origin, self.permission_request_id);
        let data = format!(r#"{{"permission_request":{},"decide_url":{}}}"#, request.get(), Json::of(&url).get());
        let mut parts = vec![Part::text(text)];
        parts.extend(Json::from_text(data).ok().map(Part::data));
        parts
    }
}

// === impl InputRequiredView ===

impl InputRequiredView {
    /// The agent's own parts, if it gave any.
    pub(super) fn own_parts(self) -> Vec<Part> {
        let own: Vec<Part> = self.parts.and_then(|parts| parts.parse().ok()).unwrap_or_default();
        if own.is_empty() { vec![Part::text(self.prompt)] } else { own }
    }

    /// The agent's own parts, if it gave any, otherwise the question.
    pub(super) fn parts(self) -> Vec<Part> {
        let own: Vec<Part> = self.parts.and_then(|parts| parts.parse().ok()).unwrap_or_default();
        let says = own.iter().any(|part| matches!(&part.content, PartContent::Text(text) if *text == self.prompt));
        match says || self.prompt.is_empty() {
            true => own,
            false => std::iter::once(Part::text(self.prompt)).chain(own).collect(),
        }
    }
}

// === impl InputReceivedView ===

impl InputReceivedView {
    pub(super) fn message(self, task: &str, context: &str) -> Option<Message> {
        let sent = self.message.and_then(|message| message.parse::<Message>().ok());
        let message = match sent {
            Some(message) => message,
            None => Message::new(self.input_id, A2aRole::User, self.parts.parse().ok()?),
        };
        Some(Message { task_id: Some(task.to_owned()), context_id: Some(context.to_owned()), ..message })
    }
}
