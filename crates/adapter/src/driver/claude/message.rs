//! The messages Claude Code prints, one JSON object per line (`--output-format stream-json`), as far as we use them.
//! Pure.
//!
//! Members come in any order and every version adds message kinds, so anything unknown is skipped.

use attache_protocol::{Json, Timestamp};
use serde::Deserialize;

use super::turn_result::ClaudeTurnResult;
use crate::host::recent::{NOTES, RecentEntries};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClaudeMessage {
    /// It has started and received the task.
    Init(ClaudeInit),
    Retry(ClaudeApiRetry),
    Limit(ClaudeRateLimit),
    /// A piece of the model's answer.
    Delta {
        /// The tool use whose sub-agent is speaking. `None` for the main agent.
        within: Option<String>,
        piece: ClaudeDelta,
    },
    /// A complete part of the model's answer.
    Assistant(ClaudeAssistantMessage),
    /// Results of tool uses.
    Results(Vec<ClaudeToolResult>),
    /// The model gets a message that we sent.
    Received {
        uuid: String,
    },
    /// It requests permission to use a tool.
    Ask {
        id: String,
        ask: ClaudeToolRequest,
    },
    /// A control request we don't support.
    Unknown {
        id: String,
    },
    /// A permission request that no longer needs an answer.
    Withdrawn {
        id: String,
    },
    /// The response to one of our requests, with its error if it failed.
    Answer {
        error: Option<String>,
    },
    Ended(Box<ClaudeTurnResult>),
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ClaudeInit {
    #[serde(default)]
    pub(super) session_id: String,
    #[serde(default)]
    pub(super) tools: Vec<String>,
    #[serde(default)]
    pub(super) mcp_servers: Vec<ClaudeMcpServer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ClaudeMcpServer {
    pub(super) name: String,
    #[serde(default)]
    pub(super) status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ClaudeApiRetry {
    pub(super) attempt: u64,
    pub(super) max_retries: Option<u64>,
    /// `None` if there was no response at all.
    pub(super) error_status: Option<u16>,
    #[serde(default)]
    pub(super) error: String,
}

/// Usage of the account's plan, sent when it changes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClaudeRateLimit {
    /// `allowed`, `allowed_warning`, `rejected`.
    pub(super) status: String,
    /// Unix time in seconds.
    pub(super) resets_at: Option<i64>,
    /// For example `five_hour`.
    pub(super) rate_limit_type: Option<String>,
    /// From 0 to 1.
    pub(super) utilization: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClaudeDelta {
    Begins {
        id: String,
        usage: ClaudeTokens,
    },
    /// A text block starts.
    Text,
    Said(String),
    Thought(String),
    /// Tokens the answer has used so far.
    Used(ClaudeTokens),
    Other,
}

/// Token totals of one answer. Missing counts are zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ClaudeTokens {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ClaudeAssistantMessage {
    pub(super) within: Option<String>,
    pub(super) id: String,
    pub(super) usage: ClaudeTokens,
    pub(super) blocks: Vec<ClaudeBlock>,
    /// Not from the model: the program reports an error.
    pub(super) is_error: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ClaudeBlock {
    Text(String),
    Thought(String),
    Tool { id: String, name: String, input: Json },
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaudeToolResult {
    pub(super) id: String,
    pub(super) failed: bool,
    pub(super) text: String,
}

/// `can_use_tool`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ClaudeToolRequest {
    pub(super) tool_name: String,
    pub(super) input: Json,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) decision_reason: Option<String>,
    #[serde(default)]
    pub(super) blocked_path: Option<String>,
    #[serde(default)]
    pub(super) tool_use_id: String,
    /// Of the sub-agent that asks.
    #[serde(default)]
    pub(super) agent_id: Option<String>,
}

#[derive(Deserialize)]
struct ClaudeLineHeader {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    subtype: Option<String>,
}

/// Whether a line is the final `result` message, even one that can't be parsed: nothing comes after it.
pub(super) fn is_end(line: &str) -> bool {
    serde_json::from_str::<ClaudeLineHeader>(line).is_ok_and(|head| head.kind == "result")
}

/// Reads one line.
pub(super) fn read(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    let head: ClaudeLineHeader = serde_json::from_str(line)?;
    match (head.kind.as_str(), head.subtype.as_deref()) {
        ("system", Some("init")) => serde_json::from_str(line).map(ClaudeMessage::Init),
        ("system", Some("api_retry")) => serde_json::from_str(line).map(ClaudeMessage::Retry),
        ("rate_limit_event", _) => limit(line),
        ("stream_event", _) => parse_stream_event(line),
        ("assistant", _) => assistant(line),
        ("user", _) => results(line),
        ("control_request", _) => request(line),
        ("control_cancel_request", _) => withdrawn(line),
        ("control_response", _) => answer(line),
        ("result", _) => serde_json::from_str(line).map(|ending| ClaudeMessage::Ended(Box::new(ending))),
        _ => Ok(ClaudeMessage::Other),
    }
}

fn limit(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct ClaudeRateLimitEvent {
        rate_limit_info: Option<ClaudeRateLimit>,
    }
    let ClaudeRateLimitEvent { rate_limit_info } = serde_json::from_str(line)?;
    Ok(rate_limit_info.map_or(ClaudeMessage::Other, ClaudeMessage::Limit))
}

// === impl ClaudeRateLimit ===

impl ClaudeRateLimit {
    pub(super) fn resets_at(&self) -> Option<Timestamp> {
        self.resets_at.and_then(|seconds| seconds.checked_mul(1000)).map(Timestamp::from_millis)
    }

    /// A warning before the limit is reached. `None` while plenty is left.
    pub(super) fn warning(&self) -> Option<String> {
        if self.status != "allowed_warning" {
            return None;
        }
        let used = self.utilization.map(|part| format!("{:.0}% of ", part * 100.0)).unwrap_or_default();
        let which = self.rate_limit_type.as_deref().unwrap_or("usage").replace('_', " ");
        let until = self.resets_at().map(|at| format!("; it resets at {at}")).unwrap_or_default();
        Some(format!("{used}the account's {which} limit is used{until}"))
    }
}

fn parse_stream_event(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct ClaudeStreamEvent {
        event: ClaudeStreamPayload,
        parent_tool_use_id: Option<String>,
    }
    #[derive(Deserialize)]
    struct ClaudeStreamPayload {
        #[serde(rename = "type")]
        kind: String,
        message: Option<ClaudeStreamStart>,
        content_block: Option<ClaudeStreamStart>,
        delta: Option<ClaudeStreamDelta>,
        usage: Option<ClaudeTokens>,
    }
    #[derive(Deserialize)]
    struct ClaudeStreamStart {
        id: Option<String>,
        #[serde(rename = "type")]
        kind: Option<String>,
        usage: Option<ClaudeTokens>,
    }
    #[derive(Deserialize)]
    struct ClaudeStreamDelta {
        text: Option<String>,
        thinking: Option<String>,
    }
    let ClaudeStreamEvent { event, parent_tool_use_id: within } = serde_json::from_str(line)?;
    let piece = match (event.kind.as_str(), event.message, event.content_block, event.delta) {
        ("message_start", Some(ClaudeStreamStart { id: Some(id), usage, .. }), _, _) => {
            ClaudeDelta::Begins { id, usage: usage.unwrap_or_default() }
        }
        ("content_block_start", _, Some(begun), _) if begun.kind.as_deref() == Some("text") => ClaudeDelta::Text,
        ("content_block_delta", _, _, Some(ClaudeStreamDelta { text: Some(text), .. })) => ClaudeDelta::Said(text),
        ("content_block_delta", _, _, Some(ClaudeStreamDelta { thinking: Some(thought), .. })) => {
            ClaudeDelta::Thought(thought)
        }
        ("message_delta", ..) => event.usage.map_or(ClaudeDelta::Other, ClaudeDelta::Used),
        _ => ClaudeDelta::Other,
    };
    Ok(ClaudeMessage::Delta { within, piece })
}

/// A content block, from the model or a tool.
#[derive(Deserialize)]
struct ClaudeContent {
    #[serde(rename = "type", default)]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    id: Option<String>,
    name: Option<String>,
    input: Option<Json>,
    tool_use_id: Option<String>,
    content: Option<Json>,
    #[serde(default)]
    is_error: Option<bool>,
}

fn assistant(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct ClaudeAssistantLine {
        message: ClaudeAssistantBody,
        parent_tool_use_id: Option<String>,
        #[serde(default)]
        is_api_error_message: bool,
    }
    #[derive(Deserialize)]
    struct ClaudeAssistantBody {
        #[serde(default)]
        id: String,
        #[serde(default)]
        content: Vec<ClaudeContent>,
        usage: Option<ClaudeTokens>,
    }
    let said: ClaudeAssistantLine = serde_json::from_str(line)?;
    Ok(ClaudeMessage::Assistant(ClaudeAssistantMessage {
        within: said.parent_tool_use_id,
        id: said.message.id,
        usage: said.message.usage.unwrap_or_default(),
        blocks: said.message.content.into_iter().map(ClaudeBlock::from).collect(),
        is_error: said.is_api_error_message,
    }))
}

fn results(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct ClaudeUserLine {
        message: ClaudeUserBody,
        #[serde(default, rename = "isReplay")]
        is_replay: bool,
        #[serde(default)]
        uuid: String,
    }
    #[derive(Deserialize)]
    struct ClaudeUserBody {
        content: Json,
    }
    let said: ClaudeUserLine = serde_json::from_str(line)?;
    if said.is_replay {
        return Ok(ClaudeMessage::Received { uuid: said.uuid });
    }
    // User messages are strings or text blocks. Only tool results matter here.
    let blocks: Vec<ClaudeContent> = said.message.content.parse().unwrap_or_default();
    let results = blocks.into_iter().filter(|block| block.kind == "tool_result").map(|block| ClaudeToolResult {
        id: block.tool_use_id.unwrap_or_default(),
        failed: block.is_error == Some(true),
        text: block.content.as_ref().map(text_of).unwrap_or_default(),
    });
    Ok(ClaudeMessage::Results(results.collect()))
}

/// The text of a string, or of the text blocks.
fn text_of(content: &Json) -> String {
    content.parse::<String>().unwrap_or_else(|_| {
        let blocks: Vec<ClaudeContent> = content.parse().unwrap_or_default();
        blocks.into_iter().filter_map(|block| block.text).collect::<Vec<_>>().join("\n")
    })
}

fn request(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct IncomingControlRequest {
        request_id: String,
        request: Json,
    }
    #[derive(Deserialize)]
    struct Kind {
        subtype: String,
    }
    let IncomingControlRequest { request_id: id, request } = serde_json::from_str(line)?;
    let asks = request.parse::<Kind>().is_ok_and(|kind| kind.subtype == "can_use_tool");
    Ok(match request.parse::<ClaudeToolRequest>() {
        Ok(ask) if asks => ClaudeMessage::Ask { id, ask },
        _ => ClaudeMessage::Unknown { id },
    })
}

fn withdrawn(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct ControlCancelRequest {
        request_id: String,
    }
    serde_json::from_str(line).map(|ControlCancelRequest { request_id: id }| ClaudeMessage::Withdrawn { id })
}

fn answer(line: &str) -> Result<ClaudeMessage, serde_json::Error> {
    #[derive(Deserialize)]
    struct IncomingControlResponse {
        response: ControlResponseBody,
    }
    #[derive(Deserialize)]
    struct ControlResponseBody {
        error: Option<String>,
    }
    serde_json::from_str(line)
        .map(|answer: IncomingControlResponse| ClaudeMessage::Answer { error: answer.response.error })
}

// === impl ClaudeTokens ===

impl ClaudeTokens {
    pub(super) fn input(self) -> u64 {
        let parts = [self.input_tokens, self.cache_creation_input_tokens, self.cache_read_input_tokens];
        parts.into_iter().flatten().fold(0, u64::saturating_add)
    }

    pub(super) fn output(self) -> u64 {
        self.output_tokens.unwrap_or(0)
    }

    /// Input and output tokens together with others.
    fn added_to(self, (input, output): (u64, u64)) -> (u64, u64) {
        (input.saturating_add(self.input()), output.saturating_add(self.output()))
    }

    /// The larger of each count: messages report running totals, and later ones omit what didn't change.
    pub(super) fn most(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.max(other.input_tokens),
            cache_creation_input_tokens: self.cache_creation_input_tokens.max(other.cache_creation_input_tokens),
            cache_read_input_tokens: self.cache_read_input_tokens.max(other.cache_read_input_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
        }
    }
}

// === impl ClaudeBlock ===

impl From<ClaudeContent> for ClaudeBlock {
    fn from(content: ClaudeContent) -> Self {
        match (content.kind.as_str(), content.text, content.thinking) {
            ("text", Some(text), _) => Self::Text(text),
            ("thinking", _, Some(thought)) => Self::Thought(thought),
            ("tool_use" | "server_tool_use", ..) => Self::Tool {
                id: content.id.unwrap_or_default(),
                name: content.name.unwrap_or_default(),
                input: content.input.unwrap_or_else(Json::empty_object),
            },
            _ => Self::Other,
        }
    }
}

/// Tokens used by the answers of a run, each answer counted once however often it is reported.
#[derive(Debug)]
pub(super) struct TokenTally {
    answers: RecentEntries<ClaudeTokens>,
    /// Input and output tokens of answers that are no longer remembered one by one.
    settled: (u64, u64),
    /// The answer currently being streamed, per (sub-)agent: by the id of the tool use that started it.
    current: RecentEntries<String>,
}

// === impl TokenTally ===

impl Default for TokenTally {
    fn default() -> Self {
        Self { answers: RecentEntries::within(NOTES), settled: (0, 0), current: RecentEntries::within(NOTES) }
    }
}

impl TokenTally {
    pub(super) fn begins(&mut self, within: Option<&str>, id: String, tokens: ClaudeTokens) {
        self.count(&id, tokens);
        let bytes = id.len();
        self.current.insert(within.unwrap_or_default(), id, bytes);
    }

    pub(super) fn goes_on(&mut self, within: Option<&str>, tokens: ClaudeTokens) {
        if let Some(id) = self.current.get(within.unwrap_or_default()).cloned() {
            self.count(&id, tokens);
        }
    }

    pub(super) fn count(&mut self, id: &str, tokens: ClaudeTokens) {
        let known = self.answers.get(id).copied().unwrap_or_default();
        for forgotten in self.answers.insert(id, known.most(tokens), size_of::<ClaudeTokens>()) {
            self.settled = forgotten.added_to(self.settled);
        }
    }

    /// Input and output tokens of all answers.
    pub(super) fn total(&self) -> (u64, u64) {
        self.answers.values().fold(self.settled, |total, tokens| tokens.added_to(total))
    }
}

#[cfg(test)]
mod tests;
