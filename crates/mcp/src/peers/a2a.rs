//! Calls to any A2A agent over the standard protocol.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use attache_a2a_wire::{
    A2aRole, Artifact, EVENTS, Fault, GetTask, Message, Part, PartContent, SendConfiguration, SendMessage,
    SendMessageResponse, StreamResponse, Task as PeerTask, TaskState, TaskStatus,
};
use attache_client::a2a::{Error, PeerClient};
use attache_protocol::{Code, Json, env::Env, wire::questionnaire::Questionnaire};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    AgentCall, AgentCallAnswer, AgentCallState, AgentQuestion, AgentTask, CallerKind, FullOutput, PendingApproval,
    RemoteAgentRequest, ToolError,
};

/// The last known state of a task.
struct TaskSnapshot {
    id: String,
    context_id: String,
    status: TaskStatus,
    artifacts: Vec<Artifact>,
}

const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn ask(
    peer: &PeerClient,
    env: &Env,
    ask: RemoteAgentRequest,
    wait: Duration,
    said: &watch::Sender<String>,
) -> Result<AgentCall, ToolError> {
    let (began, deadline) = (Instant::now(), Instant::now() + wait);
    let sent = match ask {
        RemoteAgentRequest::Wait(call) => Ok(TaskSnapshot::of(peer.get(get(&call.call_id)).await?.what)),
        RemoteAgentRequest::Answer(AgentCallAnswer { call, question_id, answer }) => {
            let seen = TaskSnapshot::of(peer.get(get(&call.call_id)).await?.what);
            // The agent may have asked another question since. The answer is only for the one that the caller saw.
            if seen.question_id().as_deref() != Some(question_id.trim()) {
                return Err(ToolError::new(
                    Code::NotWaiting.as_str(),
                    "this question is no longer open, so the answer was not sent",
                    "Call remote_agent with only call_id to see what the agent is waiting for now.",
                ));
            }
            let parts = answer.into_parts().parse().unwrap_or_default();
            send(peer, message(env, parts, Some(&seen)), deadline, said).await?
        }
        RemoteAgentRequest::Task(AgentTask { task, agent_type, context, .. }) => {
            let mut parts = vec![Part::text(&task)];
            parts.extend(context.map(Part::data));
            let mut request = message(env, parts, None);
            request.message.metadata = agent_type.map(|kind| Json::of(&json!({ "agent_type": kind })));
            send(peer, request, deadline, said).await?
        }
    };
    let mut seen = match sent {
        Ok(seen) => seen,
        Err(words) => return Ok(answered(words, began)),
    };
    loop {
        if let Some(state) = seen.state(began) {
            return Ok(AgentCall { call_id: Some(seen.id), state });
        }
        seen.send_status(said);
        let next = Instant::now() + POLL_INTERVAL;
        if next >= deadline {
            let last = Some(said.borrow().clone()).filter(|last| !last.is_empty());
            return Ok(AgentCall { call_id: Some(seen.id), state: AgentCallState::Running { last } });
        }
        sleep_until(next).await;
        match peer.get(get(&seen.id)).await {
            Ok(told) => seen = TaskSnapshot::of(told.what),
            Err(error) if error.is_passing() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) async fn cancel(peer: &PeerClient, call: &str) -> Result<AgentCall, ToolError> {
    let began = Instant::now();
    let seen = match peer.cancel(call.trim()).await {
        Ok(told) => TaskSnapshot::of(told.what),
        // The task ended before the cancellation arrived.
        Err(error) if error.fault() == Some(Fault::TaskNotCancelable) => {
            TaskSnapshot::of(peer.get(get(call)).await?.what)
        }
        Err(error) => return Err(error.into()),
    };
    let state = seen.state(began).unwrap_or(AgentCallState::Running { last: None });
    Ok(AgentCall { call_id: Some(seen.id), state })
}

/// Sends a message and follows the stream if the peer supports it. Returns a task, or the text of an immediate answer.
async fn send(
    peer: &PeerClient,
    message: SendMessage,
    deadline: Instant,
    said: &watch::Sender<String>,
) -> Result<Result<TaskSnapshot, String>, ToolError> {
    if !peer.capabilities().streaming.unwrap_or(false) {
        return Ok(match peer.send(message).await?.what {
            SendMessageResponse::Task(task) => Ok(TaskSnapshot::of(task)),
            SendMessageResponse::Message(message) => Err(text(&message.parts)),
        });
    }
    let mut events = peer.stream(message).await?;
    let mut seen: Option<TaskSnapshot> = None;
    // The task continues even if the stream breaks or ends early.
    while let Ok(Some(Ok(event))) = timeout_at(deadline, events.next()).await {
        match (event.what, &mut seen) {
            (StreamResponse::Message(message), _) => return Ok(Err(text(&message.parts))),
            (StreamResponse::Task(task), _) => seen = Some(TaskSnapshot::of(task)),
            (StreamResponse::StatusUpdate(update), Some(seen)) => seen.status = update.status,
            (StreamResponse::StatusUpdate(update), None) => {
                let (id, context_id) = (update.task_id, update.context_id);
                seen = Some(TaskSnapshot { id, context_id, status: update.status, artifacts: Vec::new() });
            }
            (StreamResponse::ArtifactUpdate(_), _) => {}
        }
        let Some(now) = &seen else { continue };
        now.send_status(said);
        if now.state(Instant::now()).is_some() {
            break;
        }
    }
    let Some(seen) = seen else {
        return Err(ToolError::new(
            "bad_reply",
            "the agent accepted the task but returned nothing",
            "Try again later.",
        ));
    };
    // The stream delivers artifacts in chunks. The task has them complete.
    match peer.get(get(&seen.id)).await {
        Ok(told) => Ok(Ok(TaskSnapshot::of(told.what))),
        Err(Error::Refused(_)) => Ok(Ok(seen)),
        Err(error) if error.is_passing() => Ok(Ok(seen)),
        Err(error) => Err(error.into()),
    }
}

fn message(env: &Env, parts: Vec<Part>, task: Option<&TaskSnapshot>) -> SendMessage {
    let mut message = Message::new(env.uuid().to_string(), A2aRole::User, parts);
    message.task_id = task.map(|task| task.id.clone());
    message.context_id = task.map(|task| task.context_id.clone()).filter(|context| !context.is_empty());
    let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
    SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None }
}

fn get(id: &str) -> GetTask {
    GetTask { tenant: None, id: id.trim().to_owned(), history_length: Some(0) }
}

fn answered(summary: String, began: Instant) -> AgentCall {
    AgentCall {
        call_id: None,
        state: AgentCallState::Completed { summary, duration: Some(began.elapsed()), full_output: None },
    }
}

/// The human-readable text of the parts.
fn text(parts: &[Part]) -> String {
    let words = parts.iter().map(|part| match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Url(url) => url.clone(),
        PartContent::Data(data) => data.get().to_owned(),
        PartContent::Raw(raw) => {
            let name = part.filename.as_deref().unwrap_or("a file");
            format!("[{name}, {} bytes]", raw.len() / 4 * 3)
        }
    });
    words.collect::<Vec<_>>().join("\n")
}

/// The complete output, if a hub marked this artifact as such.
fn full_output(artifact: &Artifact) -> Option<FullOutput> {
    let metadata: serde_json::Value = artifact.metadata.as_ref()?.parse().ok()?;
    let bytes = metadata.get(EVENTS)?.get("full_output")?.get("bytes")?.as_u64()?;
    let url = artifact.parts.iter().find_map(|part| match &part.content {
        PartContent::Url(url) => Some(url.clone()),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Data(_) => None,
    });
    Some(FullOutput { bytes, artifact_id: None, url, lost: None })
}

// === impl TaskSnapshot ===

impl TaskSnapshot {
    fn of(task: PeerTask) -> Self {
        Self {
            id: task.id,
            context_id: task.context_id,
            status: task.status,
            artifacts: task.artifacts.unwrap_or_default(),
        }
    }

    fn status_text(&self) -> Option<String> {
        self.status.message.as_ref().map(|message| text(&message.parts)).filter(|text| !text.trim().is_empty())
    }

    /// The id of the open question: the id of the message that asks it, or a hash of its text if the message has no id.
    fn question_id(&self) -> Option<String> {
        if self.status.state != TaskState::TaskStateInputRequired {
            return None;
        }
        let named = self.status.message.as_ref().map(|message| message.message_id.clone());
        Some(named.filter(|id| !id.is_empty()).unwrap_or_else(|| {
            let mut hasher = DefaultHasher::new();
            self.status_text().hash(&mut hasher);
            format!("question-{:016x}", hasher.finish())
        }))
    }

    /// The open question as a form, if the agent is one of another hub, or speaks as they do.
    fn questionnaire(&self) -> Option<Questionnaire> {
        Questionnaire::from_parts(&Json::of(&self.status.message.as_ref()?.parts))
    }

    fn send_status(&self, said: &watch::Sender<String>) {
        if let Some(words) = self.status_text() {
            let _ = said.send(words);
        }
    }

    /// `None` while the task is still running.
    fn state(&self, began: Instant) -> Option<AgentCallState> {
        use TaskState as S;
        let failed = |code: &str, otherwise: &str| {
            let message = self.status_text().unwrap_or_else(|| otherwise.to_owned());
            AgentCallState::Failed(ToolError::new(code, message, "Change the task, or use another agent."))
        };
        Some(match self.status.state {
            S::TaskStateSubmitted | S::TaskStateWorking => return None,
            S::TaskStateCompleted => {
                let full_output = self.artifacts.iter().find_map(full_output);
                let shown = self.artifacts.iter().filter(|artifact| self::full_output(artifact).is_none());
                let made = shown.map(|artifact| text(&artifact.parts)).filter(|text| !text.is_empty());
                let summary: Vec<_> = self.status_text().into_iter().chain(made).collect();
                let (summary, duration) = (summary.join("\n\n"), Some(began.elapsed()));
                AgentCallState::Completed { summary, duration, full_output }
            }
            S::TaskStateFailed => failed("task_failed", "the agent failed without giving a reason"),
            S::TaskStateCanceled => AgentCallState::Cancelled,
            S::TaskStateRejected => failed("rejected", "the agent rejected the task without giving a reason"),
            S::TaskStateInputRequired => AgentCallState::InputRequired(AgentQuestion {
                id: self.question_id().unwrap_or_default(),
                text: self.status_text().unwrap_or_else(|| "(no question text)".to_owned()),
                questionnaire: self.questionnaire(),
                caller: CallerKind::User,
            }),
            S::TaskStateAuthRequired => AgentCallState::ApprovalRequired(PendingApproval {
                id: None,
                what: self
                    .status_text()
                    .unwrap_or_else(|| "authorization that must be granted on the agent's side".to_owned()),
                caller: CallerKind::User,
            }),
        })
    }
}
