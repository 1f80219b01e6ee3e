//! A tool call as one row of the log: what it does, how it ended, its input and output.

use attache_protocol::{Json, Timestamp, json::Members, wire::event::Event};

use super::{
    escape_stripper::plain,
    exact::exact_line,
    html::Markup,
    log::FoldedLogText,
    time::duration,
    tool_input::{ToolInputBlock, ToolInputView, head},
};
use crate::text::Text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolCallView {
    /// The same in the reports of its start and its end.
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) brief: Markup,
    pub(crate) state: Option<ToolCallState>,
    pub(crate) took: Option<String>,
    pub(crate) input: Vec<ToolInputBlock>,
    pub(crate) output: Option<FoldedLogText>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolCallState {
    Started,
    Completed,
    Failed,
}

/// A call whose end hasn't been reported.
#[derive(Debug)]
pub(crate) struct OpenToolCall {
    at: Timestamp,
    start: ToolCallView,
}

const IDS: [&str; 3] = ["id", "tool_call_id", "call_id"];
const NAMES: [&str; 4] = ["tool_name", "name", "tool", "kind"];
const TITLES: [&str; 2] = ["title", "summary"];
const INPUTS: [&str; 3] = ["input", "arguments", "args"];
const OUTPUTS: [&str; 2] = ["output", "result"];

// === impl ToolCallView ===

impl ToolCallView {
    /// Adapters may describe a call with any object. Members that aren't known are shown as its input.
    pub(crate) fn new(event: &Event, t: &Text) -> Self {
        let Ok(Members(members)) = event.data.parse::<Members>() else {
            let input = ToolInputView::new(&event.data, t);
            return Self {
                id: None,
                name: t.tool.to_owned(),
                brief: input.brief,
                state: None,
                took: None,
                input: input.blocks,
                output: None,
            };
        };
        let find = |names: &[&str]| names.iter().find_map(|name| members.iter().find(|(member, _)| member == name));
        let text = |names: &[&str]| {
            let (_, value) = find(names)?;
            value.parse::<String>().ok().filter(|text| !text.trim().is_empty())
        };
        let known = [&IDS[..], &NAMES, &TITLES, &OUTPUTS, &["status"]].concat();
        let input = match find(&INPUTS) {
            Some((_, input)) => Some(input.clone()),
            None => {
                let rest = members.iter().filter(|(name, _)| !known.contains(&name.as_str()));
                object(&rest.collect::<Vec<_>>())
            }
        };
        let input = input
            .filter(|input| !matches!(input.get(), "null" | "{}" | "\"\""))
            .map(|input| ToolInputView::new(&input, t));
        let (brief, input) = input.map_or_else(|| (Markup::text(""), Vec::new()), |input| (input.brief, input.blocks));
        let title = text(&TITLES).map(|title| exact_line(&head(&plain(&title))));
        let output = find(&OUTPUTS).and_then(|(_, output)| match output.parse::<String>() {
            Ok(text) => Some(text),
            Err(_) => (output.get() != "null").then(|| attache_protocol::json::pretty(output.get())),
        });
        Self {
            id: text(&IDS),
            name: text(&NAMES).map_or_else(|| t.tool.to_owned(), |name| plain(&name)),
            brief: if brief.is_empty() { title.unwrap_or(brief) } else { brief },
            state: text(&["status"]).and_then(|status| ToolCallState::of(&status)),
            took: None,
            input,
            output: output
                .filter(|output| !output.trim().is_empty())
                .map(|output| FoldedLogText::new(plain(&output), t)),
        }
    }

    /// The end of a call, with what its start said about it.
    fn ending(mut self, open: &OpenToolCall, at: Timestamp, t: &Text) -> Self {
        let start = &open.start;
        if self.brief.is_empty() {
            self.brief = start.brief.clone();
        }
        if self.input.is_empty() {
            self.input.clone_from(&start.input);
        }
        self.took = Some(duration(at.since(open.at), t));
        self
    }
}

/// These members as one object.
fn object(members: &[&(String, Json)]) -> Option<Json> {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{}", Json::of(name).get(), value.get())).collect();
    Json::from_text(format!("{{{}}}", members.join(","))).ok()
}

// === impl ToolCallState ===

impl ToolCallState {
    fn of(status: &str) -> Option<Self> {
        match status {
            "started" | "pending" | "running" | "in_progress" => Some(Self::Started),
            "completed" | "done" | "ok" | "success" => Some(Self::Completed),
            "failed" | "error" | "cancelled" => Some(Self::Failed),
            _ => None,
        }
    }

    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Started => "live",
            Self::Completed => "done",
            Self::Failed => "fail",
        }
    }

    pub(crate) const fn icon(self) -> &'static str {
        match self {
            Self::Started => "s-live",
            Self::Completed => "s-done",
            Self::Failed => "s-fail",
        }
    }

    pub(crate) const fn word(self, t: &Text) -> &'static str {
        match self {
            Self::Started => t.tool_started,
            Self::Completed => t.tool_completed,
            Self::Failed => t.tool_failed,
        }
    }
}

/// The calls of a run that have started, by id.
#[derive(Debug, Default)]
pub(crate) struct OpenToolCalls(Vec<(String, OpenToolCall)>);

/// More are forgotten, the oldest first. Their end is shown without their start.
const MAX_OPEN: usize = 256;

impl OpenToolCalls {
    /// The call as of this event.
    pub(crate) fn take(&mut self, event: &Event, t: &Text) -> ToolCallView {
        let call = ToolCallView::new(event, t);
        let Some(id) = call.id.clone() else { return call };
        let known = self.0.iter().position(|(open, _)| *open == id);
        if call.state == Some(ToolCallState::Started) {
            if known.is_none() {
                self.0.push((id, OpenToolCall { at: event.at, start: call.clone() }));
                if self.0.len() > MAX_OPEN {
                    self.0.remove(0);
                }
            }
            return call;
        }
        match known {
            Some(at) => call.ending(&self.0.remove(at).1, event.at, t),
            None => call,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn event(at: i64, data: &str) -> Event {
        let data = Json::from_text(data).unwrap();
        Event { seq: 1, kind: "task.tool_call".to_owned(), at: Timestamp::from_millis(at), data }
    }

    #[test]
    fn a_call_is_told_by_its_command_and_ends_with_its_output() {
        let (mut calls, t) = (OpenToolCalls::default(), Language::En.text());
        let start = r#"{"id":"1","name":"Bash","status":"started","input":{"command":"cargo test"}}"#;
        let begun = calls.take(&event(0, start), t);
        assert_eq!((begun.name.as_str(), begun.brief.to_string()), ("Bash", "cargo test".to_owned()));
        assert_eq!(begun.state, Some(ToolCallState::Started));
        let end = r#"{"id":"1","name":"Bash","status":"failed","output":"line 1\n\u001b[31mline 2\u001b[0m"}"#;
        let ended = calls.take(&event(2_500, end), t);
        assert_eq!(ended.brief.to_string(), "cargo test");
        assert_eq!((ended.state, ended.took.as_deref()), (Some(ToolCallState::Failed), Some("2.5 s")));
        assert_eq!(ended.output.unwrap().shown, "line 1\nline 2");
        assert_eq!(ended.input, begun.input);
        assert!(calls.0.is_empty());
    }

    #[test]
    fn any_object_is_shown() {
        let (mut calls, t) = (OpenToolCalls::default(), Language::En.text());
        let own = calls.take(&event(0, r#"{"tool_name":"Run","command":"make","exit":0,"output":{"lines":2}}"#), t);
        assert_eq!((own.name.as_str(), own.brief.to_string(), own.state), ("Run", "make".to_owned(), None));
        assert_eq!(own.input.len(), 2);
        assert_eq!(own.output.unwrap().shown, "{\n  \"lines\": 2\n}");
        let titled = calls.take(&event(0, r#"{"title":"Read a file","status":"completed"}"#), t);
        assert_eq!((titled.name.as_str(), titled.brief.to_string()), ("Tool", "Read a file".to_owned()));
        for odd in ["null", "[]", "7", r#"{"name":7,"status":{},"input":null,"output":null}"#] {
            assert_eq!(calls.take(&event(0, odd), t).name, "Tool", "{odd}");
        }
    }
}
