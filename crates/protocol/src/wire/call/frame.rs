//! What a watcher of a call sees: each event of the run as `progress` or `message`, or not at all.

use serde::{Deserialize, Serialize};

use crate::{
    EventKind, Json,
    wire::{
        envelope::FrameObject,
        event::{Event, SnapshotRepair},
    },
};

/// One event for watchers.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    Progress(CallProgress),
    Message(CallMessage),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallProgress {
    /// What the agent is doing, as text.
    pub goal: Option<Json>,
    /// 0 to 1.
    pub progress: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallMessage {
    /// `chunk` (a piece of the answer), `thought`, `log`, `tool_call`, or another event of the run.
    pub kind: String,
    /// The text of a chunk, a thought or a log line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Json>,
    /// The complete data, if it is more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
}

/// The event for watchers. Queueing and claiming are not shown, and the end is shown with the result.
pub fn call_event(event: &Event) -> Option<CallEvent> {
    let (text, details) = match event.event_kind() {
        Some(EventKind::TaskProgress) => return Some(CallEvent::Progress(progress(&event.data))),
        Some(EventKind::TaskCreated | EventKind::TaskClaimed) => return None,
        Some(kind) if kind.is_terminal() => return None,
        Some(EventKind::TaskChunk | EventKind::TaskThought) => text(&event.data, "text"),
        Some(EventKind::TaskLog) => text(&event.data, "message"),
        Some(EventKind::SnapshotRepaired) => {
            // The run's state is reported elsewhere. Here only the gap matters.
            let missing = event.data.parse().map(|SnapshotRepair { missing, .. }| Json::of(&missing));
            (None, Some(missing.unwrap_or_else(|_| Json::empty_object())))
        }
        _ => (None, Some(event.data.clone())),
    };
    let kind = match event.event_kind() {
        Some(EventKind::SnapshotRepaired) => "gap",
        _ => event.kind.strip_prefix("task.").unwrap_or(&event.kind),
    };
    Some(CallEvent::Message(CallMessage { kind: kind.to_owned(), text, details }))
}

fn progress(data: &Json) -> CallProgress {
    let object = FrameObject::read("data", data.get()).ok();
    let goal = object.as_ref().and_then(|object| raw(object, "message"));
    let percent = object.and_then(|object| object.optional::<f64>("percent").ok().flatten());
    CallProgress { goal, progress: percent.map(|percent| percent / 100.0) }
}

/// The text, and the complete data if there is more.
fn text(data: &Json, member: &str) -> (Option<Json>, Option<Json>) {
    let text = FrameObject::read("data", data.get()).ok().and_then(|object| raw(&object, member));
    let whole = text.as_ref().is_some_and(|text| data.get() == format!(r#"{{"{member}":{}}}"#, text.get()));
    (text, (!whole).then(|| data.clone()))
}

fn raw(object: &FrameObject<'_>, member: &str) -> Option<Json> {
    object.raw(member).and_then(|text| Json::from_text(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;

    fn shown(kind: &str, data: &str) -> Option<String> {
        let data = Json::from_text(data).unwrap();
        let event = Event { seq: 1, kind: kind.to_owned(), at: Timestamp::from_millis(0), data };
        call_event(&event).map(|said| match said {
            CallEvent::Progress(progress) => format!("progress {}", Json::of(&progress).get()),
            CallEvent::Message(message) => format!("message {}", Json::of(&message).get()),
        })
    }

    #[test]
    fn events_are_shown_as_progress_and_messages() {
        for (kind, data, expected) in [
            (
                "task.progress",
                r#"{"message":"reading","percent":30}"#,
                Some(r#"progress {"goal":"reading","progress":0.3}"#),
            ),
            ("task.progress", r#"{"message":null,"percent":null}"#, Some(r#"progress {"goal":null,"progress":null}"#)),
            ("task.chunk", r#"{"text":"a\u00e9\ud800"}"#, Some(r#"message {"kind":"chunk","text":"a\u00e9\ud800"}"#)),
            (
                "task.thought",
                r#"{"text":"x","n":1.0}"#,
                Some(r#"message {"kind":"thought","text":"x","details":{"text":"x","n":1.0}}"#),
            ),
            (
                "task.log",
                r#"{"level":"warn","message":"hm"}"#,
                Some(r#"message {"kind":"log","text":"hm","details":{"level":"warn","message":"hm"}}"#),
            ),
            (
                "task.tool_call",
                r#"{"kind":"theirs"}"#,
                Some(r#"message {"kind":"tool_call","details":{"kind":"theirs"}}"#),
            ),
            ("task.waiting", r#"{"for":"input"}"#, Some(r#"message {"kind":"waiting","details":{"for":"input"}}"#)),
            (
                "snapshot.repaired",
                r#"{"missing":{"from":1,"to":4},"snapshot":{"input":"long"}}"#,
                Some(r#"message {"kind":"gap","details":{"from":1,"to":4}}"#),
            ),
            ("task.created", "{}", None),
            ("task.claimed", "{}", None),
            ("task.completed", "{}", None),
            ("task.failed", "{}", None),
            ("task.cancelled", "{}", None),
        ] {
            assert_eq!(shown(kind, data).as_deref(), expected, "{kind}");
        }
    }
}
