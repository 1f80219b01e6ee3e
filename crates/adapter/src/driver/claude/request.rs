//! The messages we send to Claude Code, one JSON object per line (`--input-format stream-json`). Pure.

use serde::Serialize;

use super::permission::ClaudePermissionResult;
use crate::attachment::Attachment;

/// One line. Which members are present depends on its type.
#[derive(Debug, Serialize)]
pub(super) struct ClaudeInputLine<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<OutgoingControlRequest<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<OutgoingControlResponse<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ClaudeUserMessage<'a>>,
    /// Comes back once the model gets the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<&'a str>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct OutgoingControlRequest<'a> {
    subtype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    append_system_prompt: Option<&'a str>,
    /// Instructions may change from one run of a conversation to the next. By default the program keeps the first ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    system_prompt_snapshot: Option<bool>,
}

#[derive(Debug, Serialize)]
struct OutgoingControlResponse<'a> {
    subtype: &'static str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ClaudePermissionResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct ClaudeUserMessage<'a> {
    role: &'static str,
    content: ClaudeUserContent<'a>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ClaudeUserContent<'a> {
    Text(&'a str),
    Blocks(Vec<ClaudeUserBlock<'a>>),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ClaudeUserBlock<'a> {
    Text { text: &'a str },
    Image { source: ClaudeBlockSource },
    Document { source: ClaudeBlockSource, title: &'a str },
}

#[derive(Debug, Serialize)]
struct ClaudeBlockSource {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: String,
    data: String,
}

/// Image types the model accepts. The model refuses larger ones itself.
const IMAGES: &[&str] = &["image/png", "image/jpeg", "image/gif", "image/webp"];
const DOCUMENT: &str = "application/pdf";
const MAX_ATTACHMENT: usize = 3 << 20;

/// Whether it accepts this attachment as message content.
pub(super) fn takes(attachment: &Attachment) -> bool {
    let kind = attachment.kind();
    let is_small = attachment.bytes().is_some_and(|bytes| bytes.len() <= MAX_ATTACHMENT);
    is_small && (IMAGES.contains(&kind.as_str()) || kind == DOCUMENT)
}

// === impl ClaudeInputLine ===

impl<'a> ClaudeInputLine<'a> {
    fn of(kind: &'static str) -> Self {
        Self { kind, request_id: None, request: None, response: None, message: None, uuid: None }
    }

    /// The first line. It carries the system prompt, because a command line has a length limit and is visible to other
    /// users.
    pub(super) fn initialize(system: Option<&'a str>) -> Self {
        let request = OutgoingControlRequest {
            subtype: "initialize",
            append_system_prompt: system,
            system_prompt_snapshot: Some(false),
        };
        Self { request_id: Some("begin"), request: Some(request), ..Self::of("control_request") }
    }

    pub(super) fn interrupt() -> Self {
        let request = OutgoingControlRequest { subtype: "interrupt", ..OutgoingControlRequest::default() };
        Self { request_id: Some("interrupt"), request: Some(request), ..Self::of("control_request") }
    }

    pub(super) fn task(text: &'a str, attached: &'a [Attachment]) -> Self {
        let blocks = attached.iter().filter_map(ClaudeUserBlock::of);
        let content = match attached {
            [] => ClaudeUserContent::Text(text),
            _ => ClaudeUserContent::Blocks(blocks.chain([ClaudeUserBlock::Text { text }]).collect()),
        };
        Self { message: Some(ClaudeUserMessage { role: "user", content }), ..Self::of("user") }
    }

    /// A message while it works.
    pub(super) fn more(text: &'a str, uuid: &'a str) -> Self {
        Self { uuid: Some(uuid), ..Self::task(text, &[]) }
    }

    pub(super) fn answer(id: &'a str, behavior: ClaudePermissionResult<'a>) -> Self {
        let response =
            OutgoingControlResponse { subtype: "success", request_id: id, response: Some(behavior), error: None };
        Self { response: Some(response), ..Self::of("control_response") }
    }

    pub(super) fn not_known(id: &'a str) -> Self {
        let error = Some("this is not supported here");
        let response = OutgoingControlResponse { subtype: "error", request_id: id, response: None, error };
        Self { response: Some(response), ..Self::of("control_response") }
    }
}

// === impl ClaudeUserBlock ===

impl<'a> ClaudeUserBlock<'a> {
    fn of(attachment: &'a Attachment) -> Option<Self> {
        let source = ClaudeBlockSource { kind: "base64", media_type: attachment.kind(), data: attachment.base64()? };
        Some(match source.media_type.as_str() {
            DOCUMENT => Self::Document { source, title: &attachment.name },
            _ => Self::Image { source },
        })
    }
}

/// Escapes a task so that it is taken as text. A leading slash would make it a command, and `/config` would change the
/// settings of the device owner.
pub(super) fn escape_slash(task: String) -> String {
    if task.starts_with(['/', '!', '#']) { format!("\n{task}") } else { task }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;
    use crate::{attachment::AttachmentBody, host::ApprovalAnswer};

    #[test]
    fn lines_have_the_programs_format() {
        let input = Json::from_text(r#"{"a":1}"#).unwrap();
        let body = AttachmentBody::Bytes(b"hi".to_vec());
        let seen = [Attachment { name: "a.png".to_owned(), media_type: "image/PNG; q=1".to_owned(), body }];
        assert!(takes(&seen[0]));
        let table = [
            (
                ClaudeInputLine::initialize(Some("be brief")),
                r#"{"type":"control_request","request_id":"begin","request":{"subtype":"initialize","appendSystemPrompt":"be brief","systemPromptSnapshot":false}}"#,
            ),
            (
                ClaudeInputLine::interrupt(),
                r#"{"type":"control_request","request_id":"interrupt","request":{"subtype":"interrupt"}}"#,
            ),
            (ClaudeInputLine::task("hi", &[]), r#"{"type":"user","message":{"role":"user","content":"hi"}}"#),
            (
                ClaudeInputLine::task("hi", &seen),
                r#"{"type":"user","message":{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},{"type":"text","text":"hi"}]}}"#,
            ),
            (
                ClaudeInputLine::more("no, tabs", "id-1"),
                r#"{"type":"user","message":{"role":"user","content":"no, tabs"},"uuid":"id-1"}"#,
            ),
            (
                ClaudeInputLine::answer("7", ClaudePermissionResult::of(&ApprovalAnswer::Allowed, &input).unwrap()),
                r#"{"type":"control_response","response":{"subtype":"success","request_id":"7","response":{"behavior":"allow","updatedInput":{"a":1}}}}"#,
            ),
            (
                ClaudeInputLine::not_known("8"),
                r#"{"type":"control_response","response":{"subtype":"error","request_id":"8","error":"this is not supported here"}}"#,
            ),
        ];
        for (line, text) in table {
            assert_eq!(serde_json::to_string(&line).unwrap(), text);
        }
    }

    #[test]
    fn a_task_is_never_a_command() {
        assert_eq!(escape_slash("/config a=b".to_owned()), "\n/config a=b");
        assert_eq!(escape_slash("tidy /tmp".to_owned()), "tidy /tmp");
    }
}
