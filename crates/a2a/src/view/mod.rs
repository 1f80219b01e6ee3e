//! A run as an A2A task: folds its events into the task and the updates that streams show.
//!
//! Pure: the same events always give the same task and the same updates. Messages of an agent are named after their
//! event, so each message has only one id.

mod artifacts;
mod bounds;
mod event_data;
mod outcome;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc};

use attache_a2a_wire::{A2aRole, Artifact, Message, Part, StatusUpdate, StreamResponse, Task, TaskState, TaskStatus};
use attache_hub::stream::RunOutline;
use attache_protocol::{
    EventKind, Json, Timestamp,
    wire::{
        event::{Event, SnapshotRepair},
        run::Run,
    },
};
use serde::Serialize;

use event_data::{
    InputReceivedView, InputRequiredView, InputWithdrawnView, PermissionDecidedView, PermissionRequestedView,
    ProgressData, RunEndedView, TextData, WaitingView,
};
use outcome::TaskOutcome;

pub(crate) use attache_a2a_wire::EVENTS;

/// The artifact for an agent's plain answer.
pub(crate) const ANSWER: &str = "answer";

/// Who reads a task, and where.
#[derive(Debug, Clone)]
pub(crate) struct TaskReader {
    /// The base URL of links to stored artifacts.
    pub(crate) origin: Arc<str>,
    /// Callers without a credential learn only that a person was asked, not what.
    pub(crate) is_anonymous: bool,
}

/// A task under construction.
#[derive(Debug, Clone)]
pub(crate) struct TaskView {
    id: String,
    context: String,
    reader: TaskReader,
    history: Vec<Message>,
    /// The ids of the messages in the history.
    known: HashSet<String>,
    history_size: bounds::StreamedSize,
    artifact_size: bounds::StreamedSize,
    state: TaskState,
    message: Option<Message>,
    at: Timestamp,
    artifacts: Vec<Artifact>,
    /// The seq of the newest event.
    seq: i64,
    /// Open questions to a person or the caller, oldest first.
    asked: Vec<OpenQuestion>,
    reply: Option<Message>,
    usage: Option<Json>,
    /// Content was left out because of its size.
    is_truncated: bool,
}

/// Something the run waits for in this state.
#[derive(Debug, Clone)]
struct OpenQuestion {
    name: String,
    state: TaskState,
    message: Message,
}

/// Metadata under [`EVENTS`].
#[derive(Debug, Default, Serialize)]
struct EventExtra<'a> {
    generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    percent: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Json>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

// === impl TaskView ===

impl TaskView {
    /// The run before its first event.
    pub(crate) fn begin(run: &Run, reader: TaskReader) -> Self {
        let asked = event_data::asked(run);
        let mut history_size = bounds::StreamedSize::default();
        history_size.takes_message(&asked.message);
        Self {
            id: run.task_run_id.to_string(),
            context: asked.context,
            reader,
            known: HashSet::from([asked.message.message_id.clone()]),
            history: vec![asked.message],
            history_size,
            artifact_size: bounds::StreamedSize::default(),
            state: TaskState::TaskStateSubmitted,
            message: None,
            at: run.created_at,
            artifacts: Vec::new(),
            seq: 0,
            asked: Vec::new(),
            reply: None,
            usage: None,
            is_truncated: false,
        }
    }

    /// The run from its record alone: its state since then, and its result, without intermediate output.
    pub(crate) fn of_record(run: &Run, since: Timestamp, reader: TaskReader) -> Self {
        let mut view = Self::begin(run, reader);
        if run.status.is_terminal() {
            view.end_as(run);
        } else {
            (view.state, view.at, view.seq) = (event_data::state(run), since, run.last_seq);
        }
        view
    }

    /// The run from its outline.
    pub(crate) fn of_outline(run: &Run, outline: &RunOutline, reader: TaskReader) -> Self {
        let mut view = Self::begin(run, reader);
        view.is_truncated = !outline.is_whole;
        outline.events.iter().for_each(|event| drop(view.take(event)));
        view
    }

    /// The same, if the outline includes the run's newest event.
    pub(crate) fn now(run: &Run, outline: &RunOutline, reader: TaskReader) -> Self {
        let mut view = Self::of_outline(run, outline, reader);
        view.seq = run.last_seq;
        // If events are missing, the record has the state they led to.
        if run.status.is_terminal() && !view.state.is_terminal() {
            view.end_as(run);
        } else if !run.status.is_terminal() && view.state != event_data::state(run) {
            (view.state, view.message) = (event_data::state(run), None);
        }
        view
    }

    /// The caller's name of the context.
    pub(crate) fn context(&self) -> &str {
        &self.context
    }

    pub(crate) fn state(&self) -> TaskState {
        self.state
    }

    pub(crate) fn seq(&self) -> i64 {
        self.seq
    }

    /// The message that the agent answers with instead of a task, if any.
    pub(crate) fn reply(&self) -> Option<&Message> {
        self.reply.as_ref()
    }

    /// The complete current task. `history` limits the number of messages, newest first; `None` means all.
    pub(crate) fn task(&self, history: Option<usize>) -> Task {
        let mut room = bounds::TaskSizeBudget::new();
        let status = self.status();
        room.takes(status.message.as_ref().map_or(0, bounds::message));
        let artifacts = room.newest(&self.artifacts, bounds::artifact);
        let known = match history {
            Some(most) => &self.history[self.history.len().saturating_sub(most)..],
            None => &self.history,
        };
        let history = (history != Some(0)).then(|| room.newest(known, bounds::message));
        let is_truncated = self.is_truncated || room.is_full();
        Task {
            id: self.id.clone(),
            context_id: self.context.clone(),
            status,
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            history,
            metadata: Some(self.metadata_of(&EventExtra { truncated: is_truncated, ..self.extra() })),
        }
    }

    /// The push notifications for the last event: its updates or, at the end, all artifacts and then the outcome. An
    /// event without changes sends the task.
    pub(crate) fn notices(&self, updates: Vec<StreamResponse>) -> Vec<StreamResponse> {
        if self.state.is_terminal() {
            let artifacts = self.artifacts.iter().map(|artifact| self.artifact_update(artifact.clone(), false, true));
            return artifacts.chain([self.status_update(None, None)]).collect();
        }
        if updates.is_empty() { vec![StreamResponse::Task(self.task(None))] } else { updates }
    }

    fn status(&self) -> TaskStatus {
        TaskStatus { state: self.state, message: self.message.clone(), timestamp: Some(self.at) }
    }

    /// Applies the next event and returns the changes.
    pub(crate) fn take(&mut self, event: &Event) -> Vec<StreamResponse> {
        self.seq = event.seq;
        match event.event_kind() {
            Some(EventKind::TaskClaimed) => self.turn(TaskState::TaskStateWorking, None, event.at),
            Some(EventKind::TaskRequeued | EventKind::TaskDeferred) => {
                self.turn(TaskState::TaskStateSubmitted, None, event.at)
            }
            Some(EventKind::TaskProgress) => self.progressed(event),
            Some(EventKind::TaskThought) => self.spoke(event, "thought"),
            Some(EventKind::TaskLog) => self.spoke(event, "log"),
            Some(EventKind::TaskToolCall) => self.called(event),
            Some(EventKind::TaskChunk) => self.chunk(event),
            Some(EventKind::ArtifactChanged) => self.changed(event),
            Some(EventKind::PermissionRequested) => self.requested(event),
            Some(EventKind::PermissionDecided) => self.settled(event),
            Some(EventKind::TaskInputRequired) => self.input_required(event),
            Some(EventKind::TaskAuthorizationRequired) => self.authorization_required(event),
            Some(EventKind::TaskInputWithdrawn) => self.withdrawn(event),
            Some(EventKind::TaskInputReceived) => self.input_received(event),
            Some(EventKind::TaskWaiting) => self.waits(event),
            Some(EventKind::TaskCompleted | EventKind::TaskFailed | EventKind::TaskCancelled) => self.ended(event),
            Some(EventKind::SnapshotRepaired) => self.repaired(event),
            _ => Vec::new(),
        }
    }

    fn turn(&mut self, state: TaskState, message: Option<Message>, at: Timestamp) -> Vec<StreamResponse> {
        self.say(message);
        (self.state, self.at) = (state, at);
        vec![self.status_update(None, None)]
    }

    /// Sets the agent's status message. The previous one moves to the history.
    fn say(&mut self, message: Option<Message>) {
        let before = std::mem::replace(&mut self.message, message);
        let is_new = |said: &Message| {
            let is_said_again = self.message.as_ref().is_some_and(|now| now.message_id == said.message_id);
            !is_said_again && !self.known.contains(&said.message_id)
        };
        let before = before.filter(is_new);
        self.remember(before);
    }

    fn remember(&mut self, messages: impl IntoIterator<Item = Message>) {
        for message in messages {
            let is_heavy = self.history_size.takes_message(&message);
            self.known.insert(message.message_id.clone());
            self.history.push(message);
            if is_heavy {
                self.is_truncated |= self.history_size.trim_history(&mut self.history);
                self.known = self.history.iter().map(|said| said.message_id.clone()).collect();
            }
        }
    }

    fn status_update(&self, kind: Option<&'static str>, percent: Option<&Json>) -> StreamResponse {
        self.update_of(self.status(), kind, percent)
    }

    fn update_of(&self, status: TaskStatus, kind: Option<&'static str>, percent: Option<&Json>) -> StreamResponse {
        StreamResponse::StatusUpdate(StatusUpdate {
            task_id: self.id.clone(),
            context_id: self.context.clone(),
            status,
            metadata: Some(self.metadata(kind, percent)),
        })
    }

    fn metadata(&self, kind: Option<&'static str>, percent: Option<&Json>) -> Json {
        self.metadata_of(&EventExtra { kind, percent, ..self.extra() })
    }

    fn extra(&self) -> EventExtra<'_> {
        EventExtra { generation: self.seq, usage: self.usage.as_ref(), ..EventExtra::default() }
    }

    fn metadata_of(&self, extra: &EventExtra<'_>) -> Json {
        let extra = Json::of(extra);
        Json::from_text(format!(r#"{{"{EVENTS}":{}}}"#, extra.get())).unwrap_or_else(|_| Json::empty_object())
    }

    /// A message of the agent, named after its event.
    fn message(&self, parts: Vec<Part>) -> Message {
        Message {
            context_id: Some(self.context.clone()),
            task_id: Some(self.id.clone()),
            ..Message::new(format!("{}-{}", self.id, self.seq), A2aRole::Agent, parts)
        }
    }

    fn progressed(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(said) = event.data.parse::<ProgressData>() else { return Vec::new() };
        let message = said.message.map(|text| self.message(vec![Part::text(text)]));
        self.say(message);
        self.at = event.at;
        vec![self.status_update(Some("progress"), said.percent.as_ref())]
    }

    /// A transient update: the task's own status message stays.
    fn passing(&self, parts: Vec<Part>, kind: &'static str, at: Timestamp) -> Vec<StreamResponse> {
        let status = TaskStatus { state: self.state, message: Some(self.message(parts)), timestamp: Some(at) };
        vec![self.update_of(status, Some(kind), None)]
    }

    fn spoke(&self, event: &Event, kind: &'static str) -> Vec<StreamResponse> {
        match event.data.parse::<TextData>() {
            Ok(TextData { text: Some(text) }) => self.passing(vec![Part::text(text)], kind, event.at),
            Ok(TextData { text: None }) | Err(_) => self.passing(vec![Part::data(event.data.clone())], kind, event.at),
        }
    }

    fn called(&self, event: &Event) -> Vec<StreamResponse> {
        self.passing(vec![Part::data(event.data.clone())], "tool_call", event.at)
    }

    fn chunk(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(TextData { text: Some(text) }) = event.data.parse::<TextData>() else { return Vec::new() };
        vec![self.answer_goes_on(vec![Part::text(text)], false)]
    }

    /// A person's permission is needed. If the run is already waiting for one, the newest question is shown.
    fn requested(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(request) = event.data.parse::<PermissionRequestedView>() else { return Vec::new() };
        let state = TaskState::TaskStateAuthRequired;
        let message = self.message(request.parts(&event.data, &self.reader));
        self.asked.push(OpenQuestion { name: request.permission_request_id, state, message: message.clone() });
        if self.state == state { self.turn(state, Some(message), event.at) } else { Vec::new() }
    }

    fn settled(&mut self, event: &Event) -> Vec<StreamResponse> {
        match event.data.parse::<PermissionDecidedView>() {
            Ok(PermissionDecidedView { permission_request_id }) => {
                self.answered_question(&permission_request_id, event.at).1
            }
            Err(_) => Vec::new(),
        }
    }

    /// The question for the current state: the newest permission, or the oldest input request, which is answered first.
    fn question(&self) -> Option<&Message> {
        let mut open = self.asked.iter().filter(|question| question.state == self.state);
        let question = match self.state {
            TaskState::TaskStateAuthRequired => open.next_back(),
            _ => open.next(),
        };
        question.map(|question| &question.message)
    }

    /// Removes the question. If the run waits for others of its kind, the next one is shown.
    fn answered_question(&mut self, name: &str, at: Timestamp) -> (Option<Message>, Vec<StreamResponse>) {
        let Some(index) = self.asked.iter().position(|question| question.name == name) else {
            return (None, Vec::new());
        };
        let OpenQuestion { message, .. } = self.asked.remove(index);
        let is_shown = self.message.as_ref().is_some_and(|shown| shown.message_id == message.message_id);
        let updates = match self.question().cloned() {
            Some(next) if is_shown => self.turn(self.state, Some(next), at),
            Some(_) | None => Vec::new(),
        };
        (Some(message), updates)
    }

    fn input_required(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(asked) = event.data.parse::<InputRequiredView>() else { return Vec::new() };
        let name = asked.input_request_id.clone();
        let message = self.message(asked.parts());
        self.asked.push(OpenQuestion { name, state: TaskState::TaskStateInputRequired, message });
        Vec::new()
    }

    /// An outside agent waits for an authorization that is granted there.
    fn authorization_required(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(asked) = event.data.parse::<InputRequiredView>() else { return Vec::new() };
        let state = TaskState::TaskStateAuthRequired;
        let (name, message) = (asked.input_request_id.clone(), self.message(asked.own_parts()));
        self.asked.push(OpenQuestion { name, state, message: message.clone() });
        if self.state == state { self.turn(state, Some(message), event.at) } else { Vec::new() }
    }

    fn withdrawn(&mut self, event: &Event) -> Vec<StreamResponse> {
        match event.data.parse::<InputWithdrawnView>() {
            Ok(InputWithdrawnView { input_request_id }) => self.answered_question(&input_request_id, event.at).1,
            Err(_) => Vec::new(),
        }
    }

    /// The question moves to the history together with its answer.
    fn input_received(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(given) = event.data.parse::<InputReceivedView>() else { return Vec::new() };
        let name = given.input_request_id.as_deref().unwrap_or_default();
        let (question, updates) = self.answered_question(name, event.at);
        let answer = given.message(&self.id, &self.context);
        let is_known = |said: &Message| self.known.contains(&said.message_id);
        let question = question.filter(|question| !is_known(question));
        self.remember(question.into_iter().chain(answer));
        updates
    }

    fn waits(&mut self, event: &Event) -> Vec<StreamResponse> {
        let state = match event.data.parse::<WaitingView>() {
            Ok(WaitingView { waiting: Some(waiting) }) => event_data::waiting(waiting),
            Ok(WaitingView { waiting: None }) | Err(_) => TaskState::TaskStateWorking,
        };
        self.state = state;
        let message = self.question().cloned();
        self.turn(state, message, event.at)
    }

    fn ended(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(ended) = event.data.parse::<RunEndedView>() else { return Vec::new() };
        self.usage = ended.usage;
        self.close(event.event_kind(), ended.output.as_ref(), event.at)
    }

    /// Nothing changes after this.
    fn close(&mut self, kind: Option<EventKind>, output: Option<&Json>, at: Timestamp) -> Vec<StreamResponse> {
        self.asked.clear();
        let outcome = match kind {
            Some(EventKind::TaskCompleted) => TaskOutcome::completed(output, &self.reader.origin),
            Some(EventKind::TaskFailed) => TaskOutcome::failed(output),
            _ => TaskOutcome::cancelled(output),
        };
        let mut updates = Vec::new();
        for artifact in outcome.artifacts {
            let known = self.artifact_at(&artifact.artifact_id).map(|at| &self.artifacts[at]);
            if known == Some(&artifact) {
                continue;
            }
            updates.push(self.artifact_update(artifact.clone(), false, true));
            self.put(artifact);
        }
        if let Some(answer) = outcome.answer {
            updates.extend(self.answered(answer));
        }
        let message = outcome.said.map(|parts| self.message(parts));
        self.reply = message.clone().filter(|_| outcome.is_reply).map(|reply| Message { task_id: None, ..reply });
        updates.extend(self.turn(outcome.state, message, at));
        updates
    }

    /// Some events are gone: the run's current state replaces them.
    fn repaired(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(repaired) = event.data.parse::<SnapshotRepair>() else { return Vec::new() };
        let Ok(run) = repaired.snapshot.parse::<Run>() else { return Vec::new() };
        if run.status.is_terminal() {
            self.end_as(&run);
        } else {
            self.state = event_data::state(&run);
            self.at = run.claimed_at.unwrap_or(run.created_at);
        }
        self.seq = event.seq;
        vec![StreamResponse::Task(self.task(None))]
    }

    fn end_as(&mut self, run: &Run) {
        self.seq = run.last_seq;
        self.usage.clone_from(&run.usage);
        let kind = event_data::ending(run.status);
        self.close(Some(kind), run.task_result.as_ref(), run.ended_at.unwrap_or(run.created_at));
    }
}
