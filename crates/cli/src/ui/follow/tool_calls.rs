//! Prints the tool calls of a followed run: each call once, with an excerpt of its output.

use std::collections::HashSet;

use attache_protocol::Json;
use serde::Deserialize;

use crate::{
    text::ask as text,
    ui::{
        output::{TextStyle, clean},
        tool_input::ToolInput,
    },
};

/// Tool calls already printed.
#[derive(Debug, Default)]
pub(crate) struct ShownToolCalls {
    shown: HashSet<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ShownToolCall {
    id: Option<String>,
    name: Option<String>,
    title: Option<String>,
    status: Option<String>,
    input: Option<Json>,
    output: Option<String>,
}

/// Maximum number of output lines shown per tool call.
const MAX_OUTPUT_LINES: usize = 5;
/// More than any host has open at a time.
const MAX_SHOWN: usize = 10_000;

// === impl ShownToolCalls ===

impl ShownToolCalls {
    /// The text to print for an event, if it adds anything new.
    pub(crate) fn take(&mut self, data: &Json) -> Option<(TextStyle, String)> {
        let call: ShownToolCall = data.parse().ok()?;
        let failed = call.status.as_deref() == Some("failed");
        let style = if failed { TextStyle::Bad } else { TextStyle::Dim };
        let is_new = match &call.id {
            Some(id) if self.shown.len() < MAX_SHOWN => self.shown.insert(id.clone()),
            Some(_) | None => true,
        };
        let mut lines = Vec::new();
        if is_new {
            lines.push(call.heading());
        } else if failed {
            lines.push(text::tool_failed(clean::exact_line(call.name.as_deref().unwrap_or(text::the_tool()))));
        }
        lines.extend(call.output.as_deref().map(excerpt).unwrap_or_default());
        (!lines.is_empty()).then(|| (style, lines.join("\n")))
    }
}

// === impl ShownToolCall ===

impl ShownToolCall {
    /// `Bash: git status`
    fn heading(&self) -> String {
        let name = self.name.as_deref().or(self.title.as_deref()).unwrap_or(text::a_tool());
        let brief = self.input.as_ref().map(|input| ToolInput::new(input).summary()).filter(|brief| brief != "{}");
        let brief = brief.or_else(|| self.title.clone()).filter(|brief| brief != name);
        match brief {
            Some(brief) => format!("{}: {}", clean::exact_line(name), clean::exact_line(&brief)),
            None => clean::exact_line(name).into_owned(),
        }
    }
}

fn excerpt(output: &str) -> Vec<String> {
    let all: Vec<&str> = output.trim().lines().collect();
    let mut lines: Vec<String> =
        all.iter().take(MAX_OUTPUT_LINES).map(|line| format!("  {}", clean::line(line))).collect();
    if all.len() > MAX_OUTPUT_LINES {
        lines.push(text::more_lines(all.len() - MAX_OUTPUT_LINES));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_printed_once_with_its_command_and_output() {
        let mut calls = ShownToolCalls::default();
        let mut said = |json: &str| calls.take(&Json::from_text(json).unwrap()).map(|(_, text)| text);
        let started = r#"{"id":"1","name":"Bash","status":"started","input":{"command":"ls"}}"#;
        assert_eq!(said(started).as_deref(), Some("Bash: ls"));
        let done = r#"{"id":"1","name":"Bash","status":"completed","input":{"command":"ls"},"output":"a\nb\n"}"#;
        assert_eq!(said(done).as_deref(), Some("  a\n  b"));
        assert_eq!(said(r#"{"id":"1","name":"Bash","status":"completed"}"#), None);
        let failed = r#"{"id":"2","name":"shell","status":"failed","title":"rm x","output":"1\n2\n3\n4\n5\n6\n7"}"#;
        assert_eq!(said(failed).as_deref(), Some("shell: rm x\n  1\n  2\n  3\n  4\n  5\n  … 2 more lines"));
        assert_eq!(said(r#"{"name":"search"}"#).as_deref(), Some("search"));
    }
}
