//! Relays a question of an outside agent to the run's caller, and the answer back to the agent.

use std::time::Duration;

use attache_a2a_wire::{GetTask, Message, PartContent, TaskState};
use attache_client::a2a::PeerEvent;
use attache_hub::in_process::AgentFailure;
use attache_protocol::{Json, wire::input_request::WorkerRequestState};

use super::{PeerRunRelay, RelayStep};
use crate::peer::{
    message::{self, PeerInput},
    peer_output::words,
};

/// How long to wait for an answer before checking on the agent again.
const QUESTION_TIMEOUT: Duration = Duration::from_secs(15);

// === impl PeerRunRelay ===

impl PeerRunRelay {
    /// Whether the agent waits for an answer that it hasn't received.
    pub(super) fn is_asked(&self) -> bool {
        self.question().is_some_and(|name| !self.answered.contains(&name))
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.state.is_interrupted())
    }

    /// An id for the agent's current question, stable across checks. A withdrawn question, or an authorization that
    /// didn't result from the caller's answer, gets a new id when asked again.
    fn question(&self) -> Option<String> {
        let kept = self.kept_question()?;
        Some(match self.turns.get(&kept) {
            Some(turn) => format!("{kept}-{turn}"),
            None => kept,
        })
    }

    fn kept_question(&self) -> Option<String> {
        let status = self.status.as_ref()?;
        let kind = match status.state {
            TaskState::TaskStateInputRequired => "peer",
            TaskState::TaskStateAuthRequired => "peer-authorization",
            _ => return None,
        };
        let mut hasher = blake3::Hasher::new();
        match (&status.message, status.timestamp) {
            (Some(message), _) => hasher.update(message.message_id.as_bytes()),
            (None, Some(at)) => hasher.update(at.to_string().as_bytes()),
            (None, None) => hasher.update(&self.answered.len().to_le_bytes()),
        };
        Some(format!("{kind}-{}", &hasher.finalize().to_hex()[..32]))
    }

    /// Uses a different id the next time it is asked.
    fn turn(&mut self, kept: &str) {
        *self.turns.entry(kept.to_owned()).or_default() += 1;
    }

    /// Asks the caller the agent's question and passes on the answer.
    pub(super) async fn ask(&mut self) -> Result<RelayStep, AgentFailure> {
        let (Some(name), Some(kept), Some(task)) = (self.question(), self.kept_question(), self.task.clone()) else {
            return Ok(RelayStep::Follow);
        };
        let message = self.status.as_ref().and_then(|status| status.message.clone());
        let parts = message.as_ref().map(|message| Json::of(&message.parts));
        let is_input = self.status.as_ref().is_some_and(|status| status.state == TaskState::TaskStateInputRequired);
        let mut asked = if is_input {
            let prompt = message.as_ref().map(words).filter(|text| !text.is_empty());
            let prompt = prompt.unwrap_or_else(|| "The agent needs more input.".to_owned());
            self.work.request_input(&name, &prompt, parts).await?
        } else {
            self.work.request_authorization(&name, &authorization(message.as_ref()), parts).await?
        };
        self.forget_questions(Some(asked.input_request_id)).await?;
        self.backoff.reset();
        while asked.state == WorkerRequestState::Pending {
            // Someone else authorizes it, so the agent has to be polled.
            let wait = if is_input { QUESTION_TIMEOUT } else { self.backoff.next(self.work.hub().env()) };
            tokio::select! {
                answer = self.work.answer(asked.input_request_id, wait) => asked = answer?,
                () = self.notice.notified() => {}
            }
            if asked.state == WorkerRequestState::Pending && self.has_moved_on(&name).await? {
                // An answer that arrived at the same moment is still passed on.
                asked = self.work.withdraw(asked.input_request_id).await?;
            }
        }
        match asked.state {
            WorkerRequestState::Answered => {}
            WorkerRequestState::Cancelled => {
                self.turn(&kept);
                return Ok(RelayStep::Follow);
            }
            // The run is over, and this future is about to be dropped.
            WorkerRequestState::Pending | WorkerRequestState::Expired => return std::future::pending().await,
        }
        let given = PeerInput { parts: asked.parts, message: asked.message };
        let ask = asked.input_request_id.to_string();
        let request = message::answer(&self.work, &ask, &task, self.context.clone(), given);
        match self.send(request).await? {
            Ok(step) => {
                self.settled(name, &kept);
                Ok(step)
            }
            // The same answer has the same id. Whether it arrived shows when the agent is polled.
            Err(error) => {
                tracing::debug!(%error, "an outside agent didn't accept an answer");
                if error.is_unexecuted() && !error.is_passing() {
                    self.settled(name, &kept);
                }
                self.pause().await;
                self.status = None;
                Ok(RelayStep::Follow)
            }
        }
    }

    fn settled(&mut self, name: String, kept: &str) {
        if kept.starts_with("peer-authorization") {
            self.turn(kept);
        } else {
            self.answered.insert(name);
        }
    }

    /// Whether the agent no longer waits for this answer.
    async fn has_moved_on(&mut self, name: &str) -> Result<bool, AgentFailure> {
        let Some(id) = self.task.clone() else { return Ok(false) };
        let Ok(PeerEvent { what, .. }) = self.connection.peer.get(GetTask { id, ..GetTask::default() }).await else {
            return Ok(false);
        };
        let before = self.status.replace(what.status);
        let is_same = self.question().as_deref() == Some(name);
        if is_same {
            self.status = before;
        } else {
            // It is read again and relayed when the task is followed.
            self.status = None;
        }
        Ok(!is_same)
    }
}

/// The prompt for people: the agent's own text, and where it says the decision is made.
fn authorization(message: Option<&Message>) -> String {
    let decided_at = message.into_iter().flat_map(|message| &message.parts).find_map(|part| match &part.content {
        PartContent::Data(data) => data.text_member("decide_url"),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
    });
    let said = message.map(words).filter(|text| !text.is_empty());
    let mut prompt =
        "The outside agent is waiting for authorization and continues on its own once it is granted.".to_owned();
    for more in [said, decided_at].into_iter().flatten() {
        prompt.push('\n');
        prompt.push_str(&more);
    }
    prompt
}
