//! Watches a call: every update of its agent once and in order, over as many connections as it takes.

use std::time::Duration;

use attache_protocol::{
    EventKind, Json,
    wire::call::{CallEvent, CallId, call_event},
};

use super::{CallError, CallReply, reply::text};
use crate::{EventStream, HubClient};

/// Follows a call to its end. `next` is cancel-safe, and a broken connection is resumed where it broke.
#[derive(Debug)]
pub struct CallStream {
    hub: HubClient,
    call: CallId,
    events: EventStream,
    /// The last event was read. Only the result remains.
    is_last: bool,
    ended: bool,
}

/// An update of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallUpdate {
    /// The agent's current step, and its progress from 0 to 1.
    Progress { goal: Option<String>, progress: Option<f64> },
    /// A message of the agent. `kind` is `chunk` (a piece of the answer), `thought`, `log`, `tool_call` or another
    /// event.
    Message { kind: String, text: Option<String>, details: Option<Json> },
    /// The answer. Always the last update.
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

    /// How long the hub may be unreachable before the stream fails. Two minutes by default.
    #[must_use]
    pub fn timeout(mut self, patience: Duration) -> Self {
        self.events = self.events.timeout(patience);
        self
    }

    /// The next update. `None` after the answer or an error. A failed call is an error.
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
                // The run had already ended. Its result says how.
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

    /// Waits for the answer and skips everything before it.
    pub async fn reply(mut self) -> Result<CallReply, CallError> {
        loop {
            match self.next().await {
                Some(Ok(CallUpdate::Completed(reply))) => return Ok(reply),
                Some(Ok(CallUpdate::Progress { .. } | CallUpdate::Message { .. })) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(self.hub.bad_reply("the event stream of the call ended before its result").into()),
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
