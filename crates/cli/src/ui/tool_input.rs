//! Renders the input of a tool and approval requests for a terminal: exact and with control characters made visible.

use attache_protocol::{
    Json, Timestamp,
    json::{Members, pretty},
    rules::permission::{DecisionScope, DecisionSource, OnTimeout, PermissionState},
    wire::permission::PermissionRequest,
};

use super::{
    names::DisplayNames,
    output::{TextCell, TextStyle, TextTable, clean, time},
};
use crate::text::{approvals as texts, terms};

/// The input of a tool, parsed for display.
#[derive(Debug)]
pub(crate) struct ToolInput {
    /// Its members in order, if it is an object without duplicate names.
    members: Option<Vec<(String, Json)>>,
    json: Json,
}

const COMMANDS: [&str; 3] = ["command", "cmd", "script"];
const PATHS: [&str; 4] = ["file_path", "path", "filePath", "file"];
const PAIRS: [(&str, &str); 4] =
    [("old_string", "new_string"), ("old_text", "new_text"), ("oldText", "newText"), ("old", "new")];

// === impl ToolInput ===

impl ToolInput {
    pub(crate) fn new(input: &Json) -> Self {
        Self { members: members(input), json: input.clone() }
    }

    /// A one-line summary.
    pub(crate) fn summary(&self) -> String {
        let named = COMMANDS.iter().chain(&PATHS).find_map(|name| self.text(name));
        let text = named.or_else(|| self.json.parse().ok()).unwrap_or_else(|| self.json.get().to_owned());
        let line = text.trim().lines().next().unwrap_or_default().to_owned();
        let short: String = line.chars().take(120).collect();
        if short.len() < text.trim().len() { format!("{short}…") } else { short }
    }

    /// The input in named sections. Together they show the complete input.
    pub(crate) fn sections(&self) -> Vec<(&str, String)> {
        let Some(members) = &self.members else {
            let text = self.json.parse::<String>().unwrap_or_else(|_| pretty(self.json.get()));
            return vec![(texts::part_input(), text)];
        };
        let pair = PAIRS.iter().find_map(|(old, new)| Some((*old, *new, self.text(old)?, self.text(new)?)));
        let mut sections = Vec::new();
        let mut left = Vec::new();
        for (name, value) in members {
            match &pair {
                Some((old, _, before, after)) if name == old => {
                    let lines = |mark: char, text: &str| -> Vec<String> {
                        text.split('\n').map(|line| format!("{mark} {line}")).collect()
                    };
                    let change = [lines('-', before), lines('+', after)].concat().join("\n");
                    sections.push((texts::part_change(), change));
                }
                Some((_, new, ..)) if name == new => {}
                _ => match value.parse::<String>() {
                    Ok(text) if COMMANDS.contains(&name.as_str()) || text.contains('\n') => {
                        sections.push((name.as_str(), text));
                    }
                    _ => {
                        left.push(format!("  {}: {}", Json::of(name).get(), pretty(value.get()).replace('\n', "\n  ")));
                    }
                },
            }
        }
        if !left.is_empty() || sections.is_empty() {
            let rest = if left.is_empty() { "{}".to_owned() } else { format!("{{\n{}\n}}", left.join(",\n")) };
            sections.push((texts::part_input(), rest));
        }
        sections
    }

    fn text(&self, wanted: &str) -> Option<String> {
        self.members.as_ref()?.iter().find(|(name, _)| name == wanted)?.1.parse().ok()
    }
}

/// The members of an object. `None` for other values and for duplicate names, which only the raw input shows correctly.
fn members(input: &Json) -> Option<Vec<(String, Json)>> {
    input.parse::<Members>().ok().filter(Members::are_distinct).map(|Members(members)| members)
}

/// A one-line summary of a request, from its input or from what the agent disclosed instead.
pub(crate) fn request_summary(request: &PermissionRequest) -> String {
    request.without_input().unwrap_or_else(|| ToolInput::new(&request.input).summary())
}

/// The input of a request in named sections; empty if the agent doesn't disclose it.
pub(crate) fn sections(request: &PermissionRequest) -> Vec<(String, String)> {
    if request.without_input().is_some() {
        return Vec::new();
    }
    let asked = ToolInput::new(&request.input);
    asked.sections().into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
}

/// The details of a request except its input.
pub(crate) fn facts(request: &PermissionRequest, names: &DisplayNames, now: Timestamp) -> TextTable {
    let mut table = TextTable::new(&["", ""]);
    let mut row = |name: &str, value: TextCell| table.row([TextCell::dim(name), value]);
    let exact = |text: &str| TextCell::plain(clean::exact_line(text));
    row(texts::row_request(), TextCell::strong(request.permission_request_id.to_string()));
    row(texts::row_state(), state_cell(request.state));
    match request.state {
        PermissionState::Pending => row(texts::row_if_unanswered(), TextCell::plain(unanswered_outcome(request, now))),
        _ => row(texts::row_decided(), TextCell::plain(verdict(request, names, now))),
    }
    if let Some(comment) = &request.comment {
        row(texts::row_comment(), exact(comment));
    }
    row(texts::row_agent(), TextCell::plain(&request.agent_name));
    row(texts::row_run(), TextCell::plain(request.task_run_id.to_string()));
    row(texts::row_device(), TextCell::plain(names.with_id(request.runtime_id)));
    row(
        texts::row_channel(),
        TextCell::plain(request.channel_id.map_or_else(|| texts::no_channel().to_owned(), |id| id.to_string())),
    );
    row(texts::row_asked(), TextCell::plain(time::relative(request.requested_at, now)));
    row(texts::row_risk(), exact(request.risk.as_deref().unwrap_or(texts::risk_not_stated())));
    if let Some(reason) = &request.reason {
        row(texts::row_reason(), exact(reason));
    }
    if let Some(cwd) = &request.cwd {
        row(texts::row_folder(), exact(cwd));
    }
    for path in &request.paths {
        row(texts::row_path(), exact(path));
    }
    if !request.undisclosed.is_empty() {
        row(
            texts::row_undisclosed(),
            TextCell::styled(clean::exact_line(&request.undisclosed.join(", ")), TextStyle::Busy),
        );
    }
    row(texts::row_bound(), TextCell::dim(&request.subject));
    row(texts::row_tool(), TextCell::styled(clean::exact_line(&request.tool), TextStyle::Strong));
    table
}

pub(crate) fn state_cell(state: PermissionState) -> TextCell {
    let style = match state {
        PermissionState::Pending => TextStyle::Busy,
        PermissionState::Approved => TextStyle::Good,
        PermissionState::Denied => TextStyle::Bad,
        PermissionState::Expired | PermissionState::Cancelled => TextStyle::Dim,
    };
    TextCell::styled(terms::permission_state(state), style)
}

/// The style of a line in a unified diff.
pub(crate) fn diff_style(line: &str) -> TextStyle {
    match line.as_bytes().first() {
        Some(b'+') => TextStyle::Good,
        Some(b'-') => TextStyle::Bad,
        Some(b'@') => TextStyle::Dim,
        _ => TextStyle::Plain,
    }
}

/// What happens if the request isn't answered.
fn unanswered_outcome(request: &PermissionRequest, now: Timestamp) -> String {
    let at = request.expires_at.map(|at| time::relative(at, now));
    match (request.on_timeout, at) {
        (OnTimeout::DenyAndHalt, Some(at)) => texts::then_fails(at),
        (OnTimeout::DenyAndContinue, Some(at)) => texts::then_continues(at),
        (OnTimeout::KeepWaiting, _) | (_, None) => texts::then_waits().to_owned(),
    }
}

/// The surface through which a person decided, as part of a sentence.
fn through(via: &str) -> String {
    match via {
        "rest" => texts::through_api().to_owned(),
        "console" => texts::through_console().to_owned(),
        "notification" => texts::through_notification().to_owned(),
        other => texts::through_other(clean::line(other)),
    }
}

/// How the request was decided, by whom and when.
pub(crate) fn verdict(request: &PermissionRequest, names: &DisplayNames, now: Timestamp) -> String {
    let at = time::relative_or(request.decided_at, now, terms::unknown_time());
    let by = request.decided_by.as_ref().map_or_else(|| terms::someone().to_owned(), |by| names.get(by));
    let place = match (&request.decided_via, &request.decided_from) {
        (Some(via), Some(from)) => Some(texts::place_from(through(via), clean::line(from))),
        (Some(via), None) => Some(through(via)),
        (None, _) => None,
    };
    let reach = scope(request.scope.unwrap_or_default());
    match (request.state, request.source) {
        (PermissionState::Pending, _) => texts::undecided().to_owned(),
        (PermissionState::Approved, Some(DecisionSource::Policy)) => texts::by_grant(by, at),
        (PermissionState::Denied, Some(DecisionSource::Policy)) => texts::barred_by_grant(by, at),
        (PermissionState::Approved, Some(DecisionSource::Mode)) => texts::by_settings(at),
        (PermissionState::Approved, _) => match place {
            Some(place) => texts::approved_through(reach, by, at, place),
            None => texts::approved_at(reach, by, at),
        },
        (PermissionState::Denied, _) => match place {
            Some(place) => texts::denied_through(reach, by, at, place),
            None => texts::denied_at(reach, by, at),
        },
        (PermissionState::Expired, _) => texts::expired_at(at),
        (PermissionState::Cancelled, _) => texts::withdrawn_at(at),
    }
}

pub(crate) fn scope(scope: DecisionScope) -> &'static str {
    match scope {
        DecisionScope::Once => texts::scope_once(),
        DecisionScope::Run => texts::scope_run(),
        DecisionScope::Conversation => texts::scope_conversation(),
        DecisionScope::Agent => texts::scope_agent(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(json: &str) -> Vec<(String, String)> {
        let asked = ToolInput::new(&Json::from_text(json).unwrap());
        asked.sections().into_iter().map(|(name, text)| (name.to_owned(), text)).collect()
    }

    fn pair(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn the_complete_input_is_shown() {
        assert_eq!(
            sections(r#"{"command":"rm -rf x\ny","timeout":1.50}"#),
            [pair("command", "rm -rf x\ny"), pair("input", "{\n  \"timeout\": 1.50\n}")]
        );
        assert_eq!(
            sections(r#"{"file_path":"a","old_string":"x","new_string":"y\nz"}"#),
            [pair("change", "- x\n+ y\n+ z"), pair("input", "{\n  \"file_path\": \"a\"\n}")]
        );
        assert_eq!(sections(r#""ls""#), [pair("input", "ls")]);
        assert_eq!(sections("{}"), [pair("input", "{}")]);
        // A duplicate name hides nothing.
        assert_eq!(
            sections(r#"{"command":"ls","command":"rm"}"#),
            [pair("input", "{\n  \"command\": \"ls\",\n  \"command\": \"rm\"\n}")]
        );
    }

    #[test]
    fn a_summary_is_one_line() {
        let brief = |json: &str| ToolInput::new(&Json::from_text(json).unwrap()).summary();
        assert_eq!(brief(r#"{"x":1,"command":"first\nsecond"}"#), "first…");
        assert_eq!(brief(r#"{"path":"a/b"}"#), "a/b");
        assert_eq!(brief(r#"{"x":1}"#), r#"{"x":1}"#);
    }
}
