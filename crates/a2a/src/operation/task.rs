//! Task operations: get, cancel, subscribe; and the extended card.

use attache_a2a_wire::{AgentCard, CancelTask, Fault, GetTask, SubscribeToTask, Task, v03};
use attache_protocol::{Json, wire::run::CancelRequest};

use super::{TaskUpdates, history};
use crate::{
    agent_request::{A2aVersion, AgentRequest},
    error::{Error, Result},
};

impl AgentRequest {
    pub(crate) async fn get(&self, request: GetTask) -> Result<Task> {
        self.tenant(request.tenant.as_deref())?;
        let most = history(request.history_length)?;
        let run = self.own_run(&request.id).await?;
        Ok(self.view(&run).await?.task(most))
    }

    pub(crate) async fn cancel(&self, request: CancelTask) -> Result<Task> {
        self.tenant(request.tenant.as_deref())?;
        let run = self.own_run(&request.id).await?;
        let ended = |id: &str| {
            Error::fault(Fault::TaskNotCancelable, "The task has ended and can't be cancelled.").with("taskId", id)
        };
        if run.status.is_terminal() {
            return Err(ended(&request.id));
        }
        match self.hub.cancel_run(self.by(), run.task_run_id, CancelRequest::default()).await {
            Ok(run) => Ok(self.view(&run).await?.task(None)),
            Err(error) if matches!(error.code.http_status(), 409) => Err(ended(&request.id)),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the current task, then its updates.
    pub(crate) async fn subscribe(&self, request: SubscribeToTask) -> Result<TaskUpdates> {
        self.tenant(request.tenant.as_deref())?;
        if !self.face.switches.streams() {
            return Err(Error::fault(Fault::UnsupportedOperation, "This agent doesn't support streaming."));
        }
        let run = self.own_run(&request.id).await?;
        if run.status.is_terminal() {
            let text = "The task has ended, so there are no more updates. Get the task instead.";
            return Err(Error::fault(Fault::UnsupportedOperation, text).with("taskId", &request.id));
        }
        TaskUpdates::of_task(self, &run).await
    }

    /// The extended card for authenticated callers, in the caller's version.
    pub(crate) async fn extended_card(&self) -> Result<Json> {
        let card = self.extended_agent_card().await?;
        Ok(match self.version {
            A2aVersion::V10 => Json::of(&card),
            A2aVersion::V03 => match v03::AgentCardV03::of_card(&card) {
                Some(old) => Json::of(&old),
                None => Json::of(&card),
            },
        })
    }

    pub(crate) async fn extended_agent_card(&self) -> Result<AgentCard> {
        if !self.face.switches.has_extended_card() {
            return Err(Error::fault(
                Fault::UnsupportedOperation,
                "This agent has no extended card. Its public card is complete.",
            ));
        }
        self.credential("The extended card requires authentication.")?;
        Ok(self.cards.extended(self.by(), &self.face.name).await?)
    }
}
