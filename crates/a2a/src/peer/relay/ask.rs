//! A question of an agent outside: asked of the run's caller, and the answer given to the agent.

use std::time::Duration;

use attache_client::a2a::Told;
use attache_hub::in_process::Failure;
use attache_protocol::{
    Json,
    wire::{
        a2a::{GetTask, TaskState},
        ask::AskState,
    },
};

use super::{Relay, Step};
use crate::peer::{
    made::words,
    message::{self, Given},
};

/// How long one look for an answer lasts, between looks at the agent itself.
const ASK_WAIT: Duration = Duration::from_secs(15);

// === impl Relay ===

impl Relay {
    /// The agent waits for an answer that it has not got yet.
    pub(super) fn is_asked(&self) -> bool {
        self.question().is_some_and(|name| !self.answered.contains(&name))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.state.is_interrupted())
    }

    /// A name for the question that the agent asks now, the same one whenever it is seen.
    fn question(&self) -> Option<String> {
        let status = self.status.as_ref().filter(|status| status.state == TaskState::TaskStateInputRequired)?;
        let mut hasher = blake3::Hasher::new();
        match (&status.message, status.timestamp) {
            (Some(message), _) => hasher.update(message.message_id.as_bytes()),
            (None, Some(at)) => hasher.update(at.to_string().as_bytes()),
            (None, None) => hasher.update(&self.answered.len().to_le_bytes()),
        };
        Some(format!("peer-{}", &hasher.finalize().to_hex()[..32]))
    }

    /// Asks the caller what the agent asks, and gives it the answer.
    pub(super) async fn ask(&mut self) -> Result<Step, Failure> {
        let (Some(name), Some(task)) = (self.question(), self.task.clone()) else { return Ok(Step::Follow) };
        let message = self.status.as_ref().and_then(|status| status.message.clone());
        let prompt = message.as_ref().map(words).filter(|text| !text.is_empty());
        let prompt = prompt.unwrap_or_else(|| "The agent needs more input.".to_owned());
        let parts = message.map(|message| Json::of(&message.parts));
        let mut asked = self.work.ask(&name, &prompt, parts).await?;
        while asked.state == AskState::Pending {
            asked = self.work.answer(asked.input_request_id, ASK_WAIT).await?;
            if asked.state == AskState::Pending && self.has_moved_on(&name).await? {
                return Ok(Step::Follow);
            }
        }
        if asked.state != AskState::Answered {
            // The run is over, and so is this future as soon as somebody looks.
            return std::future::pending().await;
        }
        let given = Given { parts: asked.parts, message: asked.message };
        let ask = asked.input_request_id.to_string();
        let request = message::answer(&self.work, &ask, &task, self.context.clone(), given);
        match self.send(request).await? {
            Ok(step) => {
                self.answered.insert(name);
                Ok(step)
            }
            // The same answer has the same id: whether it arrived shows when the agent is looked at.
            Err(error) => {
                tracing::debug!(%error, "an agent outside did not take an answer");
                if error.is_unexecuted() && !error.is_passing() {
                    self.answered.insert(name);
                }
                self.pause().await;
                self.status = None;
                Ok(Step::Follow)
            }
        }
    }

    /// Whether the agent does not wait for this answer any more.
    async fn has_moved_on(&mut self, name: &str) -> Result<bool, Failure> {
        let Some(id) = self.task.clone() else { return Ok(false) };
        let Ok(Told { what, .. }) = self.connection.peer.get(GetTask { id, ..GetTask::default() }).await else {
            return Ok(false);
        };
        let before = self.status.replace(what.status);
        let is_same = self.question().as_deref() == Some(name);
        if is_same {
            self.status = before;
        } else {
            // It is read again, and relayed, when it is followed.
            self.status = None;
        }
        Ok(!is_same)
    }
}
