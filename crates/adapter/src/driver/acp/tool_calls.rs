//! Tracks an agent's tool calls and builds the approval questions about them. Pure.

use attache_protocol::{Json, digest};

use super::{
    message::{AcpPermissionOption, AcpPermissionOutcome, AcpPermissionRequest, AcpPermissionResponse},
    update::{AcpContentBlock, AcpToolCall, AcpToolContent},
};
use crate::host::{
    ApprovalAnswer, ApprovalQuestion,
    question::{ApprovalRisk, diff},
    recent::{CONTENTS, NOTES, RecentEntries},
    turn::{ToolCall, ToolStatus},
};

/// State of the calls that haven't finished.
#[derive(Debug)]
pub(super) struct AcpOpenToolCalls {
    open: RecentEntries<AcpToolCall>,
    /// Calls that people denied. Whatever status the agent reports at the end, they count as failed.
    denied: RecentEntries<()>,
}

/// The hub's limit for the name of a tool.
const MAX_NAME: usize = 200;

// === impl AcpOpenToolCalls ===

impl Default for AcpOpenToolCalls {
    fn default() -> Self {
        Self { open: RecentEntries::within(CONTENTS), denied: RecentEntries::within(NOTES) }
    }
}

impl AcpOpenToolCalls {
    /// Applies an update. Returns the event to publish, if the call started or ended.
    pub(super) fn take(&mut self, call: AcpToolCall) -> Option<ToolCall> {
        let id = call.tool_call_id.clone();
        let status = match call.status.as_deref() {
            Some("completed") if self.denied.contains(&id) => ToolStatus::Failed,
            Some("completed") => ToolStatus::Completed,
            Some("failed" | "cancelled") => ToolStatus::Failed,
            _ => ToolStatus::Started,
        };
        let is_new = !self.open.contains(&id);
        let call = match self.open.remove(&id) {
            Some(known) => known.with(call),
            None => call,
        };
        let told = || ToolCall {
            id: id.clone(),
            name: name(&call),
            status,
            title: call.title.clone(),
            input: call.raw_input.clone(),
            output: (status != ToolStatus::Started).then(|| output(&call)).flatten(),
        };
        if status != ToolStatus::Started {
            self.denied.remove(&id);
            return Some(told());
        }
        let told = is_new.then(told);
        let bytes = call.bytes();
        self.open.insert(&id, call, bytes);
        told
    }

    /// The question for people. Agents may use different ids for the question and the call, so data in the question
    /// itself takes precedence.
    pub(super) fn question(&self, asked: &AcpPermissionRequest) -> ApprovalQuestion {
        let known = self.open.get(&asked.tool_call.tool_call_id).cloned().unwrap_or_default();
        let call = known.with(asked.tool_call.clone());
        let changes: Vec<&AcpToolContent> =
            call.content.iter().flatten().filter(|content| content.is_change()).collect();
        ApprovalQuestion {
            tool: name(&call),
            paths: paths(&call, &changes),
            reason: call.title.clone(),
            risk: risk(call.kind.as_deref()),
            diff: (!changes.is_empty()).then(|| changes.iter().map(|change| change.to_diff()).collect()),
            // What an agent shows isn't always all that it does, nor where.
            edits: false,
            in_folder: false,
            input: call.raw_input,
        }
    }

    pub(super) fn denied(&mut self, id: &str) {
        self.denied.insert(id, (), 0);
    }
}

/// The kind of the call, which is stable from one call to the next. A call without a kind goes by its title. A title that
/// can't be a name, such as a whole command, is shown as the reason only; what is allowed under one such title isn't
/// under another.
fn name(call: &AcpToolCall) -> String {
    let is_name = |text: &str| text.len() <= MAX_NAME && !text.contains(char::is_control);
    let kind = call.kind.as_deref().filter(|kind| !matches!(*kind, "other" | ""));
    match kind.or(call.title.as_deref()).filter(|text| !text.trim().is_empty()) {
        Some(name) if is_name(name) => name.to_owned(),
        Some(long) => format!("tool {}", digest::of_text(long)),
        None => "tool".to_owned(),
    }
}

fn risk(kind: Option<&str>) -> ApprovalRisk {
    match kind {
        Some("read" | "search" | "think") => ApprovalRisk::Low,
        // After a mode switch an agent may ask about less.
        Some("execute" | "delete" | "switch_mode") => ApprovalRisk::High,
        _ => ApprovalRisk::Medium,
    }
}

/// The locations the agent names, or else the files it would change. An empty list counts as undisclosed.
fn paths(call: &AcpToolCall, changes: &[&AcpToolContent]) -> Option<Vec<String>> {
    let mut paths: Vec<String> = call.locations.iter().flatten().map(|location| location.path.clone()).collect();
    for path in changes.iter().filter_map(|change| change.path.as_ref()) {
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    (!paths.is_empty()).then_some(paths)
}

fn output(call: &AcpToolCall) -> Option<String> {
    let said = call.content.iter().flatten().filter_map(|content| content.content.clone()?.into_text());
    let said: Vec<String> = said.collect();
    if !said.is_empty() {
        return Some(said.join("\n"));
    }
    call.raw_output.as_ref().map(|output| output.parse::<String>().unwrap_or_else(|_| output.get().to_owned()))
}

/// The agent's own option that matches an answer, and a remark for the log.
pub(super) fn choose(
    options: &[AcpPermissionOption],
    answer: &ApprovalAnswer,
) -> (AcpPermissionResponse, Option<String>) {
    let (once, always) = match answer {
        ApprovalAnswer::Allowed => ("allow_once", "allow_always"),
        ApprovalAnswer::Denied { .. } => ("reject_once", "reject_always"),
        ApprovalAnswer::Chosen(_) | ApprovalAnswer::Stopped => return (AcpPermissionResponse::cancelled(), None),
    };
    let of = |kind: &str| options.iter().find(|option| option.kind == kind);
    if let Some(option) = of(once) {
        return (AcpPermissionResponse::selected(option), None);
    }
    if let Some(option) = of(always) {
        let remark = format!("the agent offers no one-time answer; using `{}`", option.name);
        return (AcpPermissionResponse::selected(option), Some(remark));
    }
    let remark = format!("the agent offers no {once} option; its question is cancelled");
    (AcpPermissionResponse::cancelled(), Some(remark))
}

// === impl AcpToolCall ===

impl AcpToolCall {
    fn with(self, newer: Self) -> Self {
        Self {
            tool_call_id: newer.tool_call_id,
            title: newer.title.or(self.title),
            kind: newer.kind.or(self.kind),
            status: newer.status.or(self.status),
            content: newer.content.or(self.content),
            locations: newer.locations.or(self.locations),
            raw_input: newer.raw_input.or(self.raw_input),
            raw_output: newer.raw_output.or(self.raw_output),
        }
    }

    /// About as much memory as it takes.
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let json = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.get().len());
        let contents: usize = self.content.iter().flatten().map(AcpToolContent::bytes).sum();
        let locations: usize =
            self.locations.iter().flatten().map(|location| size_of_val(location) + location.path.len()).sum();
        let own = self.tool_call_id.len() + text(&self.title) + text(&self.kind) + text(&self.status);
        own + contents + locations + json(&self.raw_input) + json(&self.raw_output)
    }
}

// === impl AcpToolContent ===

impl AcpToolContent {
    fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let said = self.content.as_ref().map_or(0, AcpContentBlock::bytes);
        size_of_val(self) + said + text(&self.path) + text(&self.old_text) + text(&self.new_text)
    }

    fn is_change(&self) -> bool {
        self.path.is_some() && self.new_text.is_some()
    }

    fn to_diff(&self) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        diff(&text(&self.path), &text(&self.old_text), &text(&self.new_text))
    }
}

// === impl AcpPermissionResponse ===

impl AcpPermissionResponse {
    pub(super) const fn cancelled() -> Self {
        Self { outcome: AcpPermissionOutcome::Cancelled }
    }

    fn selected(option: &AcpPermissionOption) -> Self {
        Self { outcome: AcpPermissionOutcome::Selected { option_id: option.option_id.clone() } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> AcpToolCall {
        Json::from_text(text).unwrap().parse().unwrap()
    }

    fn told(call: Option<ToolCall>) -> Option<String> {
        call.map(|call| Json::of(&call).get().to_owned())
    }

    #[test]
    fn a_call_is_published_when_it_starts_and_when_it_ends() {
        let mut calls = AcpOpenToolCalls::default();
        let begun = calls.take(call(r#"{"toolCallId":"c","title":"Write a","kind":"edit","status":"pending"}"#));
        let expected = r#"{"id":"c","name":"edit","status":"started","title":"Write a"}"#;
        assert_eq!(told(begun).as_deref(), Some(expected));
        assert_eq!(told(calls.take(call(r#"{"toolCallId":"c","status":"in_progress","rawInput":{"a":1.0}}"#))), None);
        let ended = calls.take(call(
            r#"{"toolCallId":"c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"ok"}}]}"#,
        ));
        let expected =
            r#"{"id":"c","name":"edit","status":"completed","title":"Write a","input":{"a":1.0},"output":"ok"}"#;
        assert_eq!(told(ended).as_deref(), Some(expected));
        assert_eq!(calls.open.values().count(), 0);
    }

    /// Whatever its members, no agent makes us keep more than a budget.
    #[test]
    fn what_is_kept_of_open_calls_is_limited() {
        let large = "x".repeat(1 << 20);
        for member in [
            format!(r#""rawInput":"{large}""#),
            format!(r#""rawOutput":"{large}""#),
            format!(r#""title":"{large}""#),
            format!(r#""locations":[{{"path":"{large}"}}]"#),
            format!(r#""content":[{{"type":"diff","path":"a","newText":"{large}"}}]"#),
            format!(r#""content":[{{"type":"content","content":{{"type":"text","text":"{large}"}}}}]"#),
        ] {
            let mut calls = AcpOpenToolCalls::default();
            for id in 0..100 {
                calls.take(call(&format!(r#"{{"toolCallId":"c{id}",{member}}}"#)));
            }
            let kept = calls.open.values().count();
            assert!((20..=32).contains(&kept), "{kept}");
            assert!(calls.open.contains("c99"));
        }
        let mut calls = AcpOpenToolCalls::default();
        (0..100).for_each(|id| calls.denied(&format!("{id}{large}")));
        assert!(calls.denied.values().count() <= 8);
    }

    #[test]
    fn a_title_that_is_too_long_for_a_name_is_only_the_reason() {
        let named = |title: &str| name(&AcpToolCall { title: Some(title.to_owned()), ..AcpToolCall::default() });
        assert_eq!([named("Fetch a page"), named(" ")], ["Fetch a page", "tool"]);
        let (long, longer) = ("x".repeat(201), "x".repeat(202));
        assert!(named(&long).starts_with("tool ") && named(&long).len() <= MAX_NAME);
        assert!(named("two\nlines").starts_with("tool ") && named(&long) != named(&longer));
    }

    #[test]
    fn a_denied_call_counts_as_failed() {
        let mut calls = AcpOpenToolCalls::default();
        calls.take(call(r#"{"toolCallId":"c","title":"rm","kind":"execute"}"#));
        calls.denied("c");
        let ended = calls.take(call(r#"{"toolCallId":"c","status":"completed","rawOutput":"rejected"}"#)).unwrap();
        assert_eq!((ended.status, ended.output.as_deref()), (ToolStatus::Failed, Some("rejected")));
    }

    #[test]
    fn a_question_shows_everything_known_about_the_call() {
        let mut calls = AcpOpenToolCalls::default();
        calls.take(call(r#"{"toolCallId":"c","title":"write","kind":"edit","rawInput":{"n":1E2}}"#));
        let asked = AcpPermissionRequest {
            tool_call: call(
                r#"{"toolCallId":"c","title":"Write a.txt","locations":null,
                    "content":[{"type":"diff","path":"/w/a.txt","oldText":null,"newText":"one\n"}]}"#,
            ),
            options: Vec::new(),
        };
        let expected = ApprovalQuestion {
            tool: "edit".to_owned(),
            input: Some(Json::from_text(r#"{"n":1E2}"#).unwrap()),
            paths: Some(vec!["/w/a.txt".to_owned()]),
            reason: Some("Write a.txt".to_owned()),
            risk: ApprovalRisk::Medium,
            diff: Some("--- /w/a.txt\n+++ /w/a.txt\n@@ -0,0 +1 @@\n+one\n".to_owned()),
            edits: false,
            in_folder: false,
        };
        assert_eq!(calls.question(&asked), expected);

        let foreign = AcpPermissionRequest {
            tool_call: call(r#"{"toolCallId":"edit-approval-1","kind":"execute","locations":[],"rawInput":null}"#),
            options: Vec::new(),
        };
        let expected = ApprovalQuestion { risk: ApprovalRisk::High, ..ApprovalQuestion::about("execute") };
        assert_eq!(calls.question(&foreign), expected);

        let read = r#"{"toolCallId":"r","kind":"read","locations":[{"path":"/w/.env"}]}"#;
        let asked = AcpPermissionRequest { tool_call: call(read), options: Vec::new() };
        assert_eq!(calls.question(&asked).paths, Some(vec!["/w/.env".to_owned()]));
    }

    #[test]
    fn one_time_answers_are_preferred() {
        let option = |kind: &str| AcpPermissionOption {
            option_id: format!("id-{kind}"),
            name: kind.to_owned(),
            kind: kind.to_owned(),
        };
        let all = ["allow_always", "allow_once", "reject_always", "reject_once"].map(option);
        let denied = ApprovalAnswer::Denied { comment: None };
        let chosen = |kind: &str| AcpPermissionResponse::selected(&option(kind));
        assert_eq!(choose(&all, &ApprovalAnswer::Allowed), (chosen("allow_once"), None));
        assert_eq!(choose(&all, &denied), (chosen("reject_once"), None));
        assert_eq!(choose(&all, &ApprovalAnswer::Stopped), (AcpPermissionResponse::cancelled(), None));
        let only = [option("allow_always")];
        let remark = "the agent offers no one-time answer; using `allow_always`";
        assert_eq!(choose(&only, &ApprovalAnswer::Allowed), (chosen("allow_always"), Some(remark.to_owned())));
        let remark = "the agent offers no reject_once option; its question is cancelled";
        assert_eq!(choose(&only, &denied), (AcpPermissionResponse::cancelled(), Some(remark.to_owned())));
        let outcome = Json::of(&chosen("allow_once"));
        assert_eq!(outcome.get(), r#"{"outcome":{"outcome":"selected","optionId":"id-allow_once"}}"#);
        assert_eq!(Json::of(&AcpPermissionResponse::cancelled()).get(), r#"{"outcome":{"outcome":"cancelled"}}"#);
    }
}
