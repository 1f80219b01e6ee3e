//! Forwards unsolicited input of the caller to the outside agent, in order. Each delivery is a line of the run's log,
//! so that a restarted hub knows what is left, just as it knows which questions are open.

use std::collections::VecDeque;

use attache_hub::{
    in_process::{AgentFailure, InProcessRun},
    stream::RunFollow,
};
use attache_protocol::{EventKind, Json, WorkerRequestId, wire::event::Event};
use serde::{Deserialize, Serialize};

use super::{PeerRunRelay, RelayStep};
use crate::peer::message::{self, PeerInput};

#[derive(Debug)]
pub(in crate::peer) struct RelayInputs {
    waiting: VecDeque<RelayInput>,
    /// Questions from before a restart of the hub.
    open: Vec<WorkerRequestId>,
    events: RunFollow,
}

/// As in the run's events.
#[derive(Debug, Clone, Deserialize)]
struct RelayInput {
    input_id: String,
    #[serde(default)]
    input_request_id: Option<String>,
    parts: Json,
    #[serde(default)]
    message: Option<Json>,
}

#[derive(Debug, Deserialize)]
struct RelayQuestion {
    #[serde(default)]
    input_request_id: Option<WorkerRequestId>,
}

/// A line of the log.
#[derive(Debug, Serialize, Deserialize)]
struct RelayLogLine {
    message: String,
    input_id: String,
}

/// How many events are read at a time.
const PAGE: usize = 200;

// === impl RelayInputs ===

impl RelayInputs {
    /// Includes earlier input that wasn't forwarded yet.
    pub(in crate::peer) async fn open(work: &InProcessRun) -> Result<Self, AgentFailure> {
        let (hub, by, run) = (work.hub(), work.principal(), work.claim().task_run_id);
        let (mut waiting, mut open, mut after) = (VecDeque::new(), Vec::new(), 0);
        loop {
            let page = hub.run_events(by, run, Some(after), Some(PAGE)).await?;
            for event in &page.events {
                note(&mut waiting, event);
                note_question(&mut open, event);
            }
            if page.events.is_empty() {
                break;
            }
            after = page.next;
        }
        let events = hub.follow_run(by, run, Some(after)).await?;
        Ok(Self { waiting, open, events })
    }

    /// Resolves when there is input to forward. Cancel-safe.
    pub(super) async fn come(&mut self) {
        while self.waiting.is_empty() {
            match self.events.next().await {
                Some(event) => note(&mut self.waiting, &event),
                // The run is over, and this future is about to be dropped.
                None => std::future::pending().await,
            }
        }
    }
}

fn note_question(open: &mut Vec<WorkerRequestId>, event: &Event) {
    let Ok(RelayQuestion { input_request_id: Some(ask) }) = event.data.parse::<RelayQuestion>() else { return };
    match event.event_kind() {
        Some(EventKind::TaskInputRequired | EventKind::TaskAuthorizationRequired) => open.push(ask),
        Some(EventKind::TaskInputReceived | EventKind::TaskInputWithdrawn) => open.retain(|known| *known != ask),
        _ => {}
    }
}

fn note(waiting: &mut VecDeque<RelayInput>, event: &Event) {
    match event.event_kind() {
        Some(EventKind::TaskInputReceived) => {
            let input = event.data.parse::<RelayInput>().ok();
            waiting.extend(input.filter(|input| input.input_request_id.is_none()));
        }
        Some(EventKind::TaskLog) => {
            if let Ok(line) = event.data.parse::<RelayLogLine>() {
                waiting.retain(|input| input.input_id != line.input_id);
            }
        }
        _ => {}
    }
}

// === impl PeerRunRelay ===

impl PeerRunRelay {
    /// Withdraws questions from before a restart that the agent no longer asks.
    pub(super) async fn forget_questions(&mut self, but: Option<WorkerRequestId>) -> Result<(), AgentFailure> {
        for ask in std::mem::take(&mut self.inputs.open) {
            if Some(ask) != but {
                self.work.withdraw(ask).await?;
            }
        }
        Ok(())
    }

    /// Forwards the next input to the agent. `None` means to continue as before.
    pub(super) async fn forward(&mut self) -> Result<Option<RelayStep>, AgentFailure> {
        let (Some(task), Some(input)) = (self.task.clone(), self.inputs.waiting.front().cloned()) else {
            return Ok(None);
        };
        let given = PeerInput { parts: Some(input.parts), message: input.message };
        let request = message::answer(&self.work, &input.input_id, &task, self.context.clone(), given);
        let (step, told) = match self.send(request).await? {
            Ok(step) => (Some(step), "Your message was forwarded to the outside agent.".to_owned()),
            Err(error) if error.is_unexecuted() && !error.is_passing() => {
                (None, format!("The outside agent didn't accept your message: {error}"))
            }
            // The same content has the same id, so sending it twice is harmless.
            Err(error) => {
                tracing::debug!(%error, "couldn't forward a caller's message to an outside agent");
                self.pause().await;
                return Ok(None);
            }
        };
        self.inputs.waiting.pop_front();
        self.work.log(Json::of(&RelayLogLine { message: told, input_id: input.input_id })).await?;
        Ok(step)
    }
}
