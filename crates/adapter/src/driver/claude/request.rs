//! What is said to Claude Code, one JSON object a line (`--input-format stream-json`). Pure.

use serde::Serialize;

use super::permission::Behavior;

/// A line. Each kind of member is there or not.
#[derive(Debug, Serialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Response<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message<'a>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    subtype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    append_system_prompt: Option<&'a str>,
    /// Instructions may change from one run of a conversation to the next; by itself the program keeps to the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt_snapshot: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Response<'a> {
    subtype: &'static str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Behavior<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
}

// === impl Line ===

impl<'a> Line<'a> {
    fn of(kind: &'static str) -> Self {
        Self { kind, request_id: None, request: None, response: None, message: None }
    }

    /// The first line. The system prompt comes here, because a command line is short and everybody can read it.
    pub(super) fn initialize(system: Option<&'a str>) -> Self {
        let request =
            Request { subtype: "initialize", append_system_prompt: system, system_prompt_snapshot: Some(false) };
        Self { request_id: Some("begin"), request: Some(request), ..Self::of("control_request") }
    }

    pub(super) fn interrupt() -> Self {
        let request = Request { subtype: "interrupt", ..Request::default() };
        Self { request_id: Some("interrupt"), request: Some(request), ..Self::of("control_request") }
    }

    pub(super) fn task(text: &'a str) -> Self {
        Self { message: Some(Message { role: "user", content: text }), ..Self::of("user") }
    }

    pub(super) fn answer(id: &'a str, behavior: Behavior<'a>) -> Self {
        let response = Response { subtype: "success", request_id: id, response: Some(behavior), error: None };
        Self { response: Some(response), ..Self::of("control_response") }
    }

    pub(super) fn not_known(id: &'a str) -> Self {
        let error = Some("this is not supported here");
        let response = Response { subtype: "error", request_id: id, response: None, error };
        Self { response: Some(response), ..Self::of("control_response") }
    }
}

/// The task as the program takes it for words. A slash at the very beginning would be a command of its own, and `/config`
/// would change the settings of whoever owns the device.
pub(super) fn words(task: String) -> String {
    if task.starts_with(['/', '!', '#']) { format!("\n{task}") } else { task }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::host::Answer;

    #[test]
    fn lines_are_as_the_program_wants_them() {
        let input = Json::from_text(r#"{"a":1}"#).unwrap();
        let table = [
            (
                Line::initialize(Some("be brief")),
                r#"{"type":"control_request","request_id":"begin","request":{"subtype":"initialize","appendSystemPrompt":"be brief","systemPromptSnapshot":false}}"#,
            ),
            (
                Line::interrupt(),
                r#"{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}"#,
            ),
            (Line::task("hi"), r#"{"type":"user","message":{"role":"user","content":"hi"}}"#),
            (
                Line::answer("7", Behavior::of(&Answer::Allowed, &input).unwrap()),
                r#"{"type":"control_response","response":{"subtype":"success","request_id":"7","response":{"behavior":"allow","updatedInput":{"a":1}}}}"#,
            ),
            (
                Line::not_known("8"),
                r#"{"type":"control_response","response":{"subtype":"error","request_id":"8","error":"this is not supported here"}}"#,
            ),
        ];
        for (line, text) in table {
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
        }
    }

    #[test]
    fn a_task_is_never_a_command() {
        assert_eq!(words("/config a=b".to_owned()), "\n/config a=b");
        assert_eq!(words("tidy /tmp".to_owned()), "tidy /tmp");
    }
}
