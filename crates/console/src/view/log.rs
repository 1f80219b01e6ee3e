//! Converts the events of a run to log items, for pages and live streams.

use std::collections::HashMap;

use attache_protocol::{
    EventKind, Json, RuntimeId, Timestamp,
    wire::event::{self, Event},
};
use serde::Deserialize;

use super::{
    actor::{ActorLabel, Names},
    escape_stripper::{EscapeStripper, plain},
    failure,
    html::{CodeSpan, Markup},
    log_questions,
    run::ViewContext,
    time::{TimeElement, size},
    tool_call::{OpenToolCalls, ToolCallView},
};
use crate::text::Text;

/// Longer texts are folded.
pub(crate) const MAX_SHOWN: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogItem {
    /// The seq of the first event in it …
    pub(crate) seq: i64,
    /// … and of the last.
    pub(crate) last: i64,
    pub(crate) kind: LogItemKind,
    pub(crate) at: TimeElement,
    pub(crate) body: LogItemBody,
    /// The text continues the previous item.
    pub(crate) joins: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogItemKind {
    Said,
    Chunk,
    Thought,
    Host,
    Call,
    Progress,
    /// What a person said while the agent worked.
    Input,
    Step,
    Gap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LogItemBody {
    Said { who: String, text: String },
    Text(FoldedLogText),
    Thought(FoldedLogText),
    Host { level: LogLevel, text: FoldedLogText },
    Call(Box<ToolCallView>),
    Progress { message: String, percent: Option<u8> },
    Step { class: &'static str, icon: &'static str, text: Markup },
    Gap(String),
}

/// A text whose end is folded if it is very long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoldedLogText {
    pub(crate) shown: String,
    pub(crate) rest: String,
    pub(crate) rest_label: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogLevel(String);

/// Converts a run's events to items, in order.
#[derive(Debug)]
pub(crate) struct LogItemReader {
    t: &'static Text,
    asked_by: String,
    task: String,
    devices: HashMap<RuntimeId, String>,
    /// The viewer's actor.
    me: String,
    names: Names,
    chunks: EscapeStripper,
    thoughts: EscapeStripper,
    calls: OpenToolCalls,
}

/// The members of an event's data that are shown.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct LogEventData {
    text: Option<String>,
    message: Option<String>,
    percent: Option<f64>,
    level: Option<String>,
    code: Option<String>,
    reason: Option<String>,
    attempt: Option<i64>,
    runtime_id: Option<RuntimeId>,
    until: Option<Timestamp>,
    undelivered_inputs: Option<Vec<Json>>,
}

// === impl LogItemReader ===

impl LogItemReader {
    pub(crate) fn new(
        view_context: ViewContext<'_>,
        asked_by: String,
        task: String,
        devices: HashMap<RuntimeId, String>,
    ) -> Self {
        let (me, names) = (view_context.me.to_owned(), view_context.names.clone());
        Self {
            t: view_context.t,
            asked_by,
            task,
            devices,
            me,
            names,
            chunks: EscapeStripper::default(),
            thoughts: EscapeStripper::default(),
            calls: OpenToolCalls::default(),
        }
    }

    /// An actor that this event mentions and whose name isn't known yet.
    pub(crate) fn unknown(&self, event: &Event) -> Option<String> {
        log_questions::actor(event).filter(|actor| self.names.get(actor).is_none())
    }

    pub(crate) fn learn(&mut self, names: Names) {
        self.names.0.extend(names.0);
    }

    pub(crate) fn item(&mut self, event: &Event) -> LogItem {
        let data: LogEventData = event.data.parse().unwrap_or_default();
        let t = self.t;
        let (kind, body) = match event.event_kind() {
            Some(EventKind::TaskCreated) => {
                (LogItemKind::Said, LogItemBody::Said { who: self.asked_by.clone(), text: self.task.clone() })
            }
            Some(EventKind::TaskChunk) => {
                let text = self.chunks.feed(data.text.as_deref().unwrap_or_default());
                (LogItemKind::Chunk, LogItemBody::Text(FoldedLogText::new(text, t)))
            }
            Some(EventKind::TaskThought) => {
                let text = self.thoughts.feed(data.text.as_deref().unwrap_or_default());
                (LogItemKind::Thought, LogItemBody::Thought(FoldedLogText::new(text, t)))
            }
            Some(EventKind::TaskLog) => {
                let level = LogLevel(plain(data.level.as_deref().unwrap_or("info")));
                let text = plain(data.message.as_deref().unwrap_or_default());
                (LogItemKind::Host, LogItemBody::Host { level, text: FoldedLogText::new(text, t) })
            }
            Some(EventKind::TaskToolCall) => {
                (LogItemKind::Call, LogItemBody::Call(Box::new(self.calls.take(event, t))))
            }
            Some(EventKind::TaskProgress) => {
                let percent = data.percent.filter(|percent| percent.is_finite());
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=100")]
                let percent = percent.map(|percent| percent.clamp(0.0, 100.0).round() as u8);
                let message = plain(data.message.as_deref().unwrap_or_default());
                (LogItemKind::Progress, LogItemBody::Progress { message, percent })
            }
            Some(EventKind::SnapshotRepaired) => (LogItemKind::Gap, gap(event, t)),
            Some(EventKind::TaskInputReceived) => (LogItemKind::Input, self.step(&data, event)),
            _ => (LogItemKind::Step, self.step(&data, event)),
        };
        LogItem { seq: event.seq, last: event.seq, kind, at: TimeElement::clock(event.at), body, joins: kind.flows() }
    }

    /// The end of a run, with the messages that came too late for it.
    fn with_undelivered(&self, end: Markup, data: &LogEventData) -> Markup {
        match data.undelivered_inputs.as_ref().map_or(0, Vec::len) {
            0 => end,
            count => {
                let late = Markup::text(&self.t.log_undelivered(count as u64));
                Markup::trusted(format!("{end} · {late}"))
            }
        }
    }

    fn step(&self, data: &LogEventData, event: &Event) -> LogItemBody {
        let t = self.t;
        let (class, icon, text) = match event.event_kind() {
            Some(EventKind::TaskClaimed) => {
                let device = data.runtime_id.and_then(|id| self.devices.get(&id));
                let device = device.map_or(t.unknown_device, String::as_str);
                ("live", "s-dot", t.log_claimed(device, data.attempt.unwrap_or(1)))
            }
            Some(EventKind::TaskRequeued) => {
                let reason = requeue_reason(data.reason.as_deref().unwrap_or_default(), t);
                ("queued", "s-queued", t.log_requeued(&reason))
            }
            Some(EventKind::TaskDeferred) => {
                let until = data.until.unwrap_or(event.at);
                ("queued", "s-queued", t.log_deferred(TimeElement::clock(until)))
            }
            Some(EventKind::TaskCompleted) => {
                ("done", "s-done", self.with_undelivered(Markup::text(t.status_completed), data))
            }
            Some(EventKind::TaskFailed) => {
                let (title, _) = failure::explain(data.code.as_deref().unwrap_or_default(), t);
                ("fail", "s-fail", self.with_undelivered(t.log_failed(title), data))
            }
            Some(EventKind::TaskCancelled) => {
                match data.reason.as_deref().map(plain).filter(|reason| !reason.is_empty()) {
                    Some(reason) => {
                        let text = t.log_cancelled_reason(&reason);
                        ("stop", "s-stop", text)
                    }
                    None => ("stop", "s-stop", Markup::text(t.status_cancelled)),
                }
            }
            Some(EventKind::ArtifactChanged) if let Ok(change) = event.data.parse::<event::ArtifactChange>() => {
                let (first, more) = change.excerpt(t.artifact_file);
                let about = if more == 0 { first } else { t.artifact_more(more, first) };
                let (name, about) = (plain(change.title()), plain(&about));
                ("", "s-dot", t.log_artifact(CodeSpan(&name), about))
            }
            _ if let Some(step) =
                log_questions::step(event, |actor| ActorLabel::of(actor, &self.me, &self.names, t), t) =>
            {
                step
            }
            _ => {
                let about = format!("{} {}", plain(&event.kind), plain(event.data.get()));
                ("", "s-dot", Markup::text(&cut(&about, 2_000).0))
            }
        };
        LogItemBody::Step { class, icon, text }
    }
}

/// Joins consecutive chunks of the same text, and the end of a tool call with its start.
pub(crate) fn join(items: impl IntoIterator<Item = LogItem>) -> Vec<LogItem> {
    let mut joined: Vec<LogItem> = Vec::new();
    let mut calls: HashMap<String, usize> = HashMap::new();
    for item in items {
        if let LogItemBody::Call(call) = &item.body
            && let Some(id) = &call.id
        {
            if let Some(place) = calls.get(id) {
                joined[*place].body = item.body;
                continue;
            }
            calls.insert(id.clone(), joined.len());
        }
        if let Some(previous) = joined.last_mut()
            && previous.takes(&item)
        {
            continue;
        }
        joined.push(item);
    }
    joined
}

/// The text for a requeue reason.
pub(crate) fn requeue_reason(reason: &str, t: &Text) -> String {
    match reason {
        "runtime_lost" => t.requeued_runtime_lost.to_owned(),
        "released" => t.requeued_released.to_owned(),
        "usage_limit_reset" => t.requeued_limit_reset.to_owned(),
        other => plain(other),
    }
}

fn gap(event: &Event, t: &Text) -> LogItemBody {
    let missing = event.data.parse::<event::SnapshotRepair>().map(|repaired| repaired.missing);
    let (from, to) = missing.map_or((0, 0), |range| (range.from, range.to));
    LogItemBody::Gap(t.log_gap(from, to))
}

/// Splits after at most `limit` bytes, at a character boundary.
fn cut(text: &str, limit: usize) -> (String, String) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (text[..end].to_owned(), text[end..].to_owned())
}

// === impl FoldedLogText ===

impl FoldedLogText {
    pub(crate) fn new(text: String, t: &Text) -> Self {
        if text.len() <= MAX_SHOWN {
            return Self { shown: text, rest: String::new(), rest_label: String::new() };
        }
        let (shown, rest) = cut(&text, MAX_SHOWN);
        let length = size(u64::try_from(rest.len()).unwrap_or(u64::MAX));
        let rest_label = t.log_rest(&length);
        Self { shown, rest, rest_label }
    }

    fn takes(&mut self, more: &Self) -> bool {
        let fits = self.rest.is_empty() && more.rest.is_empty() && self.shown.len() + more.shown.len() <= MAX_SHOWN;
        if fits {
            self.shown.push_str(&more.shown);
        }
        fits
    }
}

// === impl LogItem ===

impl LogItem {
    /// Appends the next item if it continues the same text.
    fn takes(&mut self, next: &Self) -> bool {
        let taken = match (&mut self.body, &next.body) {
            (LogItemBody::Text(text), LogItemBody::Text(more))
            | (LogItemBody::Thought(text), LogItemBody::Thought(more)) => text.takes(more),
            _ => false,
        };
        if taken {
            self.last = next.last;
        }
        taken
    }
}

// === impl LogItemKind ===

impl LogItemKind {
    const fn flows(self) -> bool {
        matches!(self, Self::Chunk | Self::Thought)
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Said => "said",
            Self::Chunk => "chunk",
            Self::Thought => "thought",
            Self::Host => "host",
            Self::Call => "call",
            Self::Progress => "progress",
            Self::Input => "input",
            Self::Step => "step",
            Self::Gap => "gap",
        }
    }

    /// The filter above the log that controls it.
    pub(crate) const fn group(self) -> &'static str {
        match self {
            Self::Said | Self::Input | Self::Step | Self::Gap => "step",
            Self::Chunk => "text",
            Self::Thought => "thought",
            Self::Call => "call",
            Self::Host | Self::Progress => "host",
        }
    }
}

// === impl LogLevel ===

impl LogLevel {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn class(&self) -> &'static str {
        match self.0.to_ascii_lowercase().as_str() {
            "error" | "fatal" | "stderr" => "fail",
            "warn" | "warning" => "wait",
            _ => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::text::Language;

    fn event(seq: i64, kind: &str, data: &str) -> Event {
        Event { seq, kind: kind.to_owned(), at: Timestamp::from_millis(0), data: Json::from_text(data).unwrap() }
    }

    fn reader() -> LogItemReader {
        let names = Names::default();
        let view_context =
            ViewContext { t: Language::En.text(), now: Timestamp::from_millis(0), me: "", names: &names };
        LogItemReader::new(view_context, "planner".to_owned(), "do it".to_owned(), HashMap::new())
    }

    #[test]
    fn chunks_are_joined_and_an_escape_across_them_is_removed() {
        let mut reader = reader();
        let events = [
            event(1, "task.chunk", r#"{"text":"one\u001b[3"}"#),
            event(2, "task.chunk", r#"{"text":"1m two"}"#),
            event(3, "task.log", r#"{"level":"warn","message":"odd"}"#),
            event(4, "task.chunk", r#"{"text":"three"}"#),
        ];
        let items = join(events.iter().map(|event| reader.item(event)));
        let texts: Vec<_> = items
            .iter()
            .map(|item| match &item.body {
                LogItemBody::Text(text) => (item.seq, item.last, text.shown.as_str()),
                _ => (item.seq, item.last, "-"),
            })
            .collect();
        assert_eq!(texts, [(1, 2, "one two"), (3, 3, "-"), (4, 4, "three")]);
    }

    #[test]
    fn a_tool_call_is_one_item() {
        let mut reader = reader();
        let events = [
            event(1, "task.tool_call", r#"{"id":"a","name":"Bash","status":"started","input":{"command":"ls"}}"#),
            event(2, "task.tool_call", r#"{"id":"b","name":"Read","status":"started"}"#),
            event(3, "task.chunk", r#"{"text":"meanwhile"}"#),
            event(4, "task.tool_call", r#"{"id":"a","name":"Bash","status":"completed","output":"x"}"#),
        ];
        let items = join(events.iter().map(|event| reader.item(event)));
        assert_eq!(items.iter().map(|item| item.seq).collect::<Vec<_>>(), [1, 2, 3]);
        let LogItemBody::Call(call) = &items[0].body else { panic!("{items:?}") };
        assert_eq!((call.brief.to_string(), call.output.as_ref().unwrap().shown.as_str()), ("ls".to_owned(), "x"));
    }

    #[test]
    fn a_long_text_is_folded_at_a_character_boundary() {
        let text = "é".repeat(MAX_SHOWN);
        let capped = FoldedLogText::new(text.clone(), Language::En.text());
        assert_eq!(capped.shown.len(), MAX_SHOWN);
        assert_eq!(format!("{}{}", capped.shown, capped.rest), text);
        assert_eq!(capped.rest_label, "Show 16 KiB more");
    }

    #[test]
    fn malformed_data_still_produces_an_item() {
        let mut reader = reader();
        for kind in ["task.chunk", "task.log", "task.tool_call", "task.progress", "snapshot.repaired", "odd.kind"] {
            for data in ["null", "[]", r#"{"text":7}"#, r#"{"percent":"x"}"#] {
                assert_eq!(reader.item(&event(9, kind, data)).seq, 9);
            }
        }
    }
}
