//! Watching a call: what its agent says, each once and in order, over as many connections as it takes.

use std::time::Duration;

use attache_protocol::{
    EventKind, Json,
    wire::call::{CallEvent, CallId, call_event},
};

use super::{CallError, CallReply, reply::text};
use crate::{EventStream, HubClient};

/// Follows a call to its end. `next` may be dropped and called again; a connection that breaks is resumed where it broke.
#[derive(Debug)]
pub struct CallStream {
    hub: HubClient,
    call: CallId,
    events: EventStream,
    /// The last event was read; what remains is the result.
    is_last: bool,
    ended: bool,
}

/// What somebody who watches a call is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum CallUpdate {
    /// What the agent does, and how much is done, from 0 to 1.
    Progress { goal: Option<String>, progress: Option<f64> },
    /// What the agent says: `kind` is `chunk` (a piece of the answer), `thought`, `log`, `tool_call`, or what else happens.
    Message { kind: String, text: Option<String>, details: Option<Json> },
    /// The answer. Nothing comes after it.
    Completed(CallReply),
}

// === impl CallStream ===

impl CallStream {
    pub(super) fn new(hub: HubClient, call: CallId) -> Self {
        let events = hub.follow(call.run(), 0);
        Self { hub, call, events, is_last: false, ended: false }
    }

    pub const fn call_id(&self) -> CallId {
        self.call
    }

    /// How long the hub may be unreachable before the stream ends with an error; two minutes unless told.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.events = self.events.timeout(patience);
        self
    }

    /// The next update; none after the answer or an error. A call that failed is an error.
    pub async fn next(&mut self) -> Option<Result<CallUpdate, CallError>> {
        if self.ended {
            return None;
        }
        while !self.is_last {
            match self.events.next().await {
                Some(Ok(event)) if event.event_kind().is_some_and(EventKind::is_terminal) => self.is_last = true,
                Some(Ok(event)) => {
                    if let Some(said) = call_event(&event) {
                        return Some(Ok(CallUpdate::from(said)));
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error.into()));
                }
                // The run had ended before: its result says how.
                None => self.is_last = true,
            }
        }
        let reply = match self.hub.call_result(self.call).await {
            Ok(result) => CallReply::of(self.call, result),
            Err(error) => Err(error.into()),
        };
        self.ended = true;
        Some(reply.map(CallUpdate::Completed))
    }

    /// The answer, whatever is said before it.
    pub async fn reply(mut self) -> Result<CallReply, CallError> {
        loop {
            match self.next().await {
                Some(Ok(CallUpdate::Completed(reply))) => return Ok(reply),
                Some(Ok(CallUpdate::Progress { .. } | CallUpdate::Message { .. })) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(self.hub.bad_reply("a call's stream ended without its answer").into()),
            }
        }
    }
}

// === impl CallUpdate ===

impl From<CallEvent> for CallUpdate {
    fn from(said: CallEvent) -> Self {
        match said {
            CallEvent::Progress(progress) => {
                Self::Progress { goal: progress.goal.as_ref().map(text), progress: progress.progress }
            }
            CallEvent::Message(message) => {
                Self::Message { kind: message.kind, text: message.text.as_ref().map(text), details: message.details }
            }
        }
    }
}
