//! Executes one run at an outside agent: sends it once, follows it, relays questions, and reports the outcome.

mod inputs;
mod peer_events;
mod questions;

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use attache_a2a_wire::{Fault, GetTask, ListTasks, SendMessage, SendMessageResponse, StreamResponse, Task, TaskStatus};
use attache_client::{
    Backoff,
    a2a::{self, PeerEvent, PeerEventStream},
    all_pages,
};
use attache_hub::in_process::{AgentFailure, AgentOutput, InProcessRun, NewPeerTask, PeerTask};
use attache_protocol::rules::{recovery::Recovery, run::FailureCode};

use super::{agent::PeerConnection, files, message, notices::NoticeWaiter, peer_output::PeerOutput};
pub(super) use inputs::RelayInputs;

/// The state of one run.
#[derive(Debug)]
pub(super) struct PeerRunRelay {
    work: InProcessRun,
    connection: PeerConnection,
    notice: NoticeWaiter,
    made: PeerOutput,
    task: Option<String>,
    context: Option<String>,
    /// The agent's latest status.
    status: Option<TaskStatus>,
    /// Id of the last relayed message, so that it is relayed once.
    told: Option<String>,
    /// The agent's questions that were answered.
    answered: HashSet<String>,
    /// How many times each question was asked.
    turns: HashMap<String, u32>,
    /// Unsolicited input from the caller.
    inputs: RelayInputs,
    recovery: Option<Recovery>,
    backoff: Backoff,
    /// How many times the agent didn't know the task.
    missed: u32,
    /// The last error that leaves the state of the task unknown.
    trouble: Option<String>,
    /// Whether the task was resubscribed before: an agent that closes its streams early isn't asked again at once.
    rejoined: bool,
}

type RelayOutcome = Result<AgentOutput, AgentFailure>;

/// What to do next.
enum RelayStep {
    End(RelayOutcome),
    Open(PeerEventStream),
    Follow,
}

const INITIAL_BACKOFF: Duration = Duration::from_millis(250);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// An agent that has just started may not have loaded its tasks yet.
const MAX_MISSES: u32 = 4;
const MAX_PAGES: usize = 5;

/// The task created by our message, if the agent lists its tasks and has one.
pub(super) async fn find(peer: &a2a::PeerClient, message_id: &str) -> a2a::Result<Option<PeerEvent<Task>>> {
    let mut tasks = all_pages(MAX_PAGES, |page_token| async move {
        let request = ListTasks { page_size: Some(100), history_length: Some(100), page_token, ..ListTasks::default() };
        let listed = peer.list(request).await?;
        Ok::<_, a2a::Error>((listed.tasks, Some(listed.next_page_token).filter(|token| !token.is_empty())))
    });
    while let Some(task) = tasks.next().await? {
        if task.history.iter().flatten().any(|message| message.message_id == message_id) {
            // Getting it by id returns everything.
            return peer.get(GetTask { id: task.id, history_length: Some(0), tenant: None }).await.map(Some);
        }
    }
    Ok(None)
}

// === impl PeerRunRelay ===

impl PeerRunRelay {
    pub(super) fn new(
        work: InProcessRun,
        mut connection: PeerConnection,
        notice: NoticeWaiter,
        inputs: RelayInputs,
    ) -> Self {
        connection.peer = connection.peer.traced(message::traceparent(&work));
        Self {
            work,
            connection,
            notice,
            made: PeerOutput::default(),
            task: None,
            context: None,
            status: None,
            told: None,
            answered: HashSet::new(),
            turns: HashMap::new(),
            inputs,
            recovery: None,
            backoff: Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF),
            missed: 0,
            trouble: None,
            rejoined: false,
        }
    }

    pub(super) async fn run(mut self, known: Option<PeerTask>) -> RelayOutcome {
        let mut step = match known {
            None => self.begin().await?,
            Some(known) if known.peer_task_id.is_some() => {
                (self.task, self.context) = (known.peer_task_id, known.peer_context_id);
                self.recovery = known.recovery;
                RelayStep::Follow
            }
            Some(known) => self.recover(&known.message_id).await?,
        };
        loop {
            step = match step {
                RelayStep::End(Ok(output)) => {
                    return Ok(files::keep(&self.connection.peer, &self.work, &self.made.all(), output).await);
                }
                RelayStep::End(Err(failure)) => return Err(failure),
                RelayStep::Open(events) => self.drain(events).await?,
                RelayStep::Follow if self.is_asked() => self.ask().await?,
                RelayStep::Follow => self.rejoin().await?,
            };
        }
    }

    fn streams(&self) -> bool {
        self.connection.peer.capabilities().streaming == Some(true)
    }

    /// Sends the run, once. It is recorded before it is sent.
    async fn begin(&mut self) -> Result<RelayStep, AgentFailure> {
        let context = self.earlier_context().await?;
        let push = match self.connection.peer.capabilities().push_notifications {
            Some(true) => self.notice.config(),
            Some(false) | None => None,
        };
        let request = message::first(&self.work, context, push);
        let message_id = request.message.message_id.clone();
        let noted = NewPeerTask { url: self.connection.url.clone(), message_id: message_id.clone() };
        self.work.begin_peer_task(noted).await?;
        loop {
            let error = match self.send(request.clone()).await? {
                Ok(step) => return Ok(step),
                Err(error) => error,
            };
            match (error.is_unexecuted(), error.is_passing()) {
                (true, true) => {
                    self.note(Recovery::Unreachable).await?;
                    self.pause().await;
                }
                (true, false) => return Ok(RelayStep::End(Err(refused(&error)))),
                (false, _) => {
                    tracing::info!(run.id = message_id, %error, "unknown whether an outside agent received its task");
                    self.trouble = Some(error.to_string());
                    return self.recover(&message_id).await;
                }
            }
        }
    }

    /// The agent's context of this conversation, from earlier runs.
    async fn earlier_context(&self) -> Result<Option<String>, AgentFailure> {
        let earlier = self.work.earlier_peer_tasks().await?;
        Ok(earlier.into_iter().filter(|task| task.url == self.connection.url).find_map(|task| task.peer_context_id))
    }

    async fn send(&mut self, request: SendMessage) -> Result<a2a::Result<RelayStep>, AgentFailure> {
        if self.streams() {
            return Ok(self.connection.peer.stream(request).await.map(RelayStep::Open));
        }
        let sent = match self.connection.peer.send(request).await {
            Ok(sent) => sent,
            Err(error) => return Ok(Err(error)),
        };
        let native_status = sent.native_status;
        let what = match sent.what {
            SendMessageResponse::Task(task) => StreamResponse::Task(task),
            SendMessageResponse::Message(message) => StreamResponse::Message(message),
        };
        let end = self.take(PeerEvent { what, native_status }).await?;
        Ok(Ok(end.map_or(RelayStep::Follow, RelayStep::End)))
    }

    /// It is unknown whether the message was sent: asks the agent, and never resends.
    async fn recover(&mut self, message_id: &str) -> Result<RelayStep, AgentFailure> {
        loop {
            match find(&self.connection.peer, message_id).await {
                Ok(Some(found)) => {
                    let PeerEvent { what, native_status } = found;
                    let end = self.take(PeerEvent { what: StreamResponse::Task(what), native_status }).await?;
                    return Ok(end.map_or(RelayStep::Follow, RelayStep::End));
                }
                Ok(None) if self.missed < MAX_MISSES => {
                    self.missed += 1;
                    self.note(Recovery::RemoteMissing).await?;
                    self.pause().await;
                }
                Err(error) if error.is_passing() => {
                    self.note(Recovery::Unreachable).await?;
                    self.pause().await;
                }
                Ok(None) | Err(_) => {
                    self.note(Recovery::RemoteMissing).await?;
                    return Ok(RelayStep::End(Err(self.lost())));
                }
            }
        }
    }

    /// The failure when the state of the task is unknown.
    fn lost(&self) -> AgentFailure {
        let what = "It is unknown whether the outside agent executed the task. It isn't resent, to avoid executing it \
                    twice.";
        let why = match &self.trouble {
            Some(trouble) => format!("Sending the task failed: {trouble} {what}"),
            None => format!("The hub stopped or the connection broke while the task was being sent. {what}"),
        };
        AgentFailure::new(why).code(FailureCode::RuntimeLost)
    }

    /// Follows a stream until it ends, or until a question.
    async fn drain(&mut self, mut events: PeerEventStream) -> Result<RelayStep, AgentFailure> {
        let idle_after = self.work.hub().options().idle_after;
        loop {
            let next = tokio::select! {
                next = tokio::time::timeout(idle_after, events.next()) => next,
                () = self.inputs.come(), if self.task.is_some() => match self.forward().await? {
                    Some(step) => return Ok(step),
                    None => continue,
                },
            };
            match next {
                Err(_) if self.is_waiting() => {}
                Err(_) => self.note(Recovery::RemoteIdle).await?,
                Ok(Some(Ok(told))) => {
                    self.backoff.reset();
                    if let Some(end) = self.take(told).await? {
                        return Ok(RelayStep::End(self.whole(end).await?));
                    }
                    if self.is_asked() {
                        return Ok(RelayStep::Follow);
                    }
                }
                Ok(None) => {
                    self.trouble.get_or_insert_with(|| "the stream ended before it named a task.".to_owned());
                    return self.broken().await;
                }
                Ok(Some(Err(error))) => {
                    tracing::debug!(%error, "the stream of an outside agent ended");
                    self.trouble = Some(error.to_string());
                    return self.broken().await;
                }
            }
        }
    }

    /// Some agents only report completion on their streams. The output is in the task.
    async fn whole(&mut self, end: RelayOutcome) -> Result<RelayOutcome, AgentFailure> {
        let is_silent = self.status.as_ref().is_some_and(|status| status.message.is_none()) && self.made.is_nothing();
        let Some(id) = self.task.clone().filter(|_| is_silent && end.is_ok()) else { return Ok(end) };
        match self.connection.peer.get(GetTask { id, history_length: Some(0), tenant: None }).await {
            Ok(PeerEvent { what, native_status }) if what.status.state.is_terminal() => {
                Ok(self.take(PeerEvent { what: StreamResponse::Task(what), native_status }).await?.unwrap_or(end))
            }
            Ok(_) | Err(_) => Ok(end),
        }
    }

    /// A stream broke before the task ended. Without the task's id it is unknown whether there is one.
    async fn broken(&mut self) -> Result<RelayStep, AgentFailure> {
        match &self.task {
            Some(_) => Ok(RelayStep::Follow),
            None => self.recover(&message::id(&self.work)).await,
        }
    }

    /// Resumes a task: by its stream if there is one, else by polling.
    async fn rejoin(&mut self) -> Result<RelayStep, AgentFailure> {
        let Some(task) = self.task.clone() else { return self.recover(&message::id(&self.work)).await };
        if self.streams() && self.status.as_ref().is_none_or(|status| !status.state.is_interrupted()) {
            if std::mem::replace(&mut self.rejoined, true) {
                self.pause().await;
            }
            match self.connection.peer.subscribe(&task).await {
                Ok(events) => return Ok(RelayStep::Open(events)),
                // It has ended in the meantime, or doesn't support subscriptions. Then it can be polled.
                Err(error) => tracing::debug!(%error, "can't subscribe to an outside agent"),
            }
        }
        match self.connection.peer.get(GetTask { id: task, history_length: Some(0), tenant: None }).await {
            Ok(PeerEvent { what, native_status }) => {
                self.missed = 0;
                if let Some(end) = self.take(PeerEvent { what: StreamResponse::Task(what), native_status }).await? {
                    return Ok(RelayStep::End(end));
                }
            }
            Err(error) if error.fault() == Some(Fault::TaskNotFound) => {
                self.missed += 1;
                self.note(Recovery::RemoteMissing).await?;
                if self.missed >= MAX_MISSES {
                    let why = "The outside agent no longer knows the task. It isn't resent, to avoid executing \
                               it twice.";
                    return Ok(RelayStep::End(Err(self.failure(why).code(FailureCode::RuntimeLost))));
                }
            }
            // Also if refused for now: a changed key may be entered, and the run has its own deadline.
            Err(error) => {
                tracing::debug!(%error, "can't get the state of a task from an outside agent");
                self.note(Recovery::Unreachable).await?;
            }
        }
        if self.is_asked() {
            return Ok(RelayStep::Follow);
        }
        let wait = self.backoff.next(self.work.hub().env());
        tokio::select! {
            () = tokio::time::sleep(wait) => Ok(RelayStep::Follow),
            () = self.notice.notified() => {
                self.backoff.reset();
                Ok(RelayStep::Follow)
            }
            () = self.inputs.come() => Ok(self.forward().await?.unwrap_or(RelayStep::Follow)),
        }
    }

    async fn pause(&mut self) {
        let wait = self.backoff.next(self.work.hub().env());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.notice.notified() => self.backoff.reset(),
        }
    }
}

/// The agent refused the task.
fn refused(error: &a2a::Error) -> AgentFailure {
    let code = match error {
        a2a::Error::Denied { .. } => FailureCode::Refused,
        _ => FailureCode::TaskFailed,
    };
    AgentFailure::new(format!("The outside agent didn't accept the task: {error}")).code(code)
}
