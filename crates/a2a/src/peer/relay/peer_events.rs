//! Handles events of an outside agent: relays them to watchers of the run, records them, and detects the end.

use attache_a2a_wire::{StreamResponse, TaskState, TaskStatus};
use attache_client::a2a::PeerEvent;
use attache_hub::in_process::{AgentFailure, PeerTaskChange};
use attache_protocol::{
    rules::{recovery::Recovery, run::FailureCode},
    wire::event::ArtifactChange,
};

use super::{PeerRunRelay, RelayOutcome};
use crate::peer::peer_output::{TooMuchOutput, said_at_last, words};

/// More than any id has. A database on a server couldn't index a very long one.
const MAX_NAME: usize = 1024;

// === impl PeerRunRelay ===

impl PeerRunRelay {
    /// Relays an event. `Some` if it was the last one.
    pub(super) async fn take(&mut self, told: PeerEvent<StreamResponse>) -> Result<Option<RelayOutcome>, AgentFailure> {
        let PeerEvent { what, native_status } = told;
        match what {
            StreamResponse::Message(message) => {
                let change = PeerTaskChange { native_status, ..PeerTaskChange::default() };
                self.link(change, Recovery::DoneUnreconciled).await?;
                Ok(Some(Ok(self.made.output(Some(&message)).as_message())))
            }
            StreamResponse::Task(task) => {
                for artifact in task.artifacts.into_iter().flatten() {
                    if let Some(change) = self.made.whole(artifact)? {
                        self.show(&change).await?;
                    }
                }
                self.handle_event(task.id, task.context_id, task.status, native_status).await
            }
            StreamResponse::StatusUpdate(update) => {
                self.handle_event(update.task_id, update.context_id, update.status, native_status).await
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.name(update.task_id.clone(), update.context_id.clone()).await?;
                let change = self.made.piece(update)?;
                self.show(&change).await?;
                Ok(None)
            }
        }
    }

    async fn handle_event(
        &mut self,
        task: String,
        context: String,
        status: TaskStatus,
        native_status: Option<String>,
    ) -> Result<Option<RelayOutcome>, AgentFailure> {
        let recovery = match status.state {
            state if state.is_terminal() => Recovery::DoneUnreconciled,
            state if state.is_interrupted() => Recovery::RemoteWaiting,
            _ => Recovery::RemoteRunning,
        };
        let (peer_task_id, peer_context_id) = (Some(task), Some(context).filter(|context| !context.is_empty()));
        let change = PeerTaskChange { peer_task_id, peer_context_id, native_status, recovery: None };
        self.link(change, recovery).await?;
        let passes = !status.state.is_interrupted() && !status.state.is_terminal();
        if passes {
            self.forget_questions(None).await?;
        }
        if let Some(message) = status.message.as_ref().filter(|_| passes)
            && self.told.as_ref() != Some(&message.message_id)
        {
            self.told = Some(message.message_id.clone());
            let text = words(message);
            if !text.is_empty() {
                self.work.note(&text).await?;
            }
        }
        let end = self.end(&status);
        self.status = Some(status);
        Ok(end)
    }

    fn end(&self, status: &TaskStatus) -> Option<RelayOutcome> {
        let message = status.message.as_ref();
        let said = message.map(words).filter(|text| !text.is_empty());
        let failed = |otherwise: &str| {
            let mut failure = self.failure(&said.clone().unwrap_or_else(|| otherwise.to_owned()));
            failure.message = message.map(said_at_last);
            failure
        };
        match status.state {
            TaskState::TaskStateCompleted => Some(Ok(self.made.output(message))),
            TaskState::TaskStateFailed => Some(Err(failed("The outside agent failed."))),
            TaskState::TaskStateCanceled => Some(Err(failed("The outside agent cancelled the task on its own."))),
            TaskState::TaskStateRejected => {
                Some(Err(failed("The outside agent rejected the task.").code(FailureCode::Rejected)))
            }
            TaskState::TaskStateSubmitted
            | TaskState::TaskStateWorking
            | TaskState::TaskStateInputRequired
            | TaskState::TaskStateAuthRequired => None,
        }
    }

    pub(super) fn failure(&self, why: &str) -> AgentFailure {
        let mut failure = AgentFailure::new(why);
        failure.artifacts = self.made.artifacts();
        failure
    }

    /// Records the agent's ids for the task.
    async fn name(&mut self, task: String, context: String) -> Result<(), AgentFailure> {
        if self.task.is_some() {
            return Ok(());
        }
        let (peer_task_id, peer_context_id) = (Some(task), Some(context).filter(|context| !context.is_empty()));
        let change = PeerTaskChange { peer_task_id, peer_context_id, ..PeerTaskChange::default() };
        self.link(change, Recovery::RemoteRunning).await
    }

    async fn link(&mut self, change: PeerTaskChange, recovery: Recovery) -> Result<(), AgentFailure> {
        let names = [&change.peer_task_id, &change.peer_context_id, &change.native_status];
        if names.into_iter().flatten().any(|name| name.len() > MAX_NAME) {
            return Err(
                self.failure("The outside agent's id of the task, its context or its status is longer than 1 KiB.")
            );
        }
        let change = PeerTaskChange { recovery: Some(Some(recovery)), ..change };
        let linked = self.work.link_peer_task(change).await?;
        (self.task, self.context) = (linked.peer_task_id, linked.peer_context_id);
        self.recovery = Some(recovery);
        Ok(())
    }

    /// Stores the recovery state, if it changed.
    pub(super) async fn note(&mut self, recovery: Recovery) -> Result<(), AgentFailure> {
        if self.recovery == Some(recovery) {
            return Ok(());
        }
        self.link(PeerTaskChange::default(), recovery).await
    }

    async fn show(&self, change: &ArtifactChange) -> Result<(), AgentFailure> {
        match self.work.artifact(change).await {
            // An artifact too large for an event is still in the outcome.
            Err(error) if matches!(error.code.http_status(), 400 | 413) => {
                tracing::debug!(%error, "can't show an artifact of an outside agent");
                Ok(())
            }
            shown => Ok(shown?),
        }
    }
}

// === impl TooMuchOutput ===

impl From<TooMuchOutput> for AgentFailure {
    fn from(_: TooMuchOutput) -> Self {
        Self::new(
            "The outside agent sent more than 64 MiB or 10,000 artifacts. Ask it for less, or for links to files.",
        )
    }
}
