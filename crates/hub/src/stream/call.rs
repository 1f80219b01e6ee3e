//! The stream of a call: what its agent reports, from the start, and then its result.

use attache_protocol::{
    EventKind, Json,
    wire::{
        call::{CallCompletedData, CallEvent, CallFailedData, CallId, CallResult, CallStatus, call_event},
        event::Event,
    },
};
use bytes::Bytes;

use crate::{
    Handle, Principal, Result,
    control::about_call,
    stream::{RunFollow, SseSource, sse},
};

/// How much of a call is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallDetail {
    Everything,
    /// The agent's messages, without progress.
    Messages,
}

/// Follows a call until it ends. Ends early if the hub drains or the caller loses access.
#[derive(Debug)]
pub struct CallFollow {
    hub: Handle,
    call: CallId,
    shown: CallDetail,
    events: RunFollow,
    /// The seq of the run's last event, once read.
    last: Option<i64>,
    ended: bool,
}

/// One event of the stream of a call: `{"type","data"}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStreamEvent {
    /// The position to continue from after it.
    pub seq: i64,
    /// `progress`, `message`, `completed` or `failed`.
    pub kind: &'static str,
    pub data: Json,
}

// === impl Handle ===

impl Handle {
    /// Everything after `after` and all new events, until the call has ended.
    pub async fn watch_call(
        &self,
        by: &Principal,
        call: CallId,
        shown: CallDetail,
        after: Option<i64>,
    ) -> Result<CallFollow> {
        let events = self.follow_run(by, call.run(), after).await.map_err(about_call)?;
        Ok(CallFollow { hub: self.clone(), call, shown, events, last: None, ended: false })
    }
}

// === impl CallFollow ===

impl CallFollow {
    /// The next frame. `None` after the last one. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<CallStreamEvent> {
        if self.ended {
            return None;
        }
        while self.last.is_none() {
            let event = self.events.next().await?;
            if event.event_kind().is_some_and(EventKind::is_terminal) {
                self.last = Some(event.seq);
            } else if let Some(frame) = self.frame(&event) {
                return Some(frame);
            }
        }
        let frame = self.ending(self.last?).await;
        self.ended = true;
        frame
    }

    /// Whether the last frame was returned.
    pub const fn is_ended(&self) -> bool {
        self.ended
    }

    fn frame(&self, event: &Event) -> Option<CallStreamEvent> {
        let (kind, data) = match call_event(event)? {
            CallEvent::Progress(_) if self.shown == CallDetail::Messages => return None,
            CallEvent::Progress(progress) => ("progress", Json::of(&progress)),
            CallEvent::Message(message) => ("message", Json::of(&message)),
        };
        Some(CallStreamEvent { seq: event.seq, kind, data })
    }

    async fn ending(&self, seq: i64) -> Option<CallStreamEvent> {
        let result = match self.hub.call_result(self.events.principal(), self.call).await {
            Ok(result) => result,
            Err(error) => {
                tracing::debug!(run.id = %self.call.run(), %error, "the result of a call could not be read");
                return None;
            }
        };
        let CallResult { status, result, stats, error, code } = result;
        let (kind, data) = match (status, error, code) {
            (CallStatus::Completed, ..) => ("completed", Json::of(&CallCompletedData { result, stats })),
            (_, error, code) => {
                let error = error.unwrap_or_else(|| Json::of("The call failed."));
                ("failed", Json::of(&CallFailedData { error, code: code.unwrap_or_else(|| "task_failed".to_owned()) }))
            }
        };
        Some(CallStreamEvent { seq, kind, data })
    }
}

impl SseSource for CallFollow {
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.next().await.map(|frame| sse::frame(frame.seq, frame.kind, &frame.text()))
    }
}

// === impl CallStreamEvent ===

impl CallStreamEvent {
    /// The wire format.
    pub fn text(&self) -> String {
        format!(r#"{{"type":"{}","data":{}}}"#, self.kind, self.data.get())
    }
}
