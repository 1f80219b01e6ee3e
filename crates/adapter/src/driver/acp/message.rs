//! The messages of the Agent Client Protocol, version 1, that a run needs. Unknown members are ignored, missing ones
//! are `None`, and whatever people are asked about keeps its original text.

use std::path::Path;

use attache_protocol::{Json, wire::adapter::RunTools};
use serde::{Deserialize, Serialize};

use super::update::AcpToolCall;
use crate::{
    attachment::Attachment,
    host::{HostUsage, TOOLS_SERVER},
};

/// The protocol version this driver speaks.
pub(super) const VERSION: u16 = 1;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpInitialize {
    protocol_version: u16,
    client_capabilities: AcpClientCapabilities,
    client_info: AcpClientInfo,
}

#[derive(Debug, Serialize)]
struct AcpClientCapabilities {
    fs: AcpFileCapabilities,
    terminal: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AcpFileCapabilities {
    read_text_file: bool,
    write_text_file: bool,
}

#[derive(Debug, Serialize)]
struct AcpClientInfo {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

/// The agent's answer to `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpAgent {
    pub(super) protocol_version: Option<Json>,
    agent_capabilities: Option<AcpAgentCapabilities>,
    auth_methods: Option<Vec<AcpAuthMethod>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcpAgentCapabilities {
    load_session: Option<bool>,
    prompt_capabilities: Option<PromptCapabilities>,
    mcp_capabilities: Option<McpCapabilities>,
}

/// Content types a prompt may contain besides text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct PromptCapabilities {
    image: Option<bool>,
    audio: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct McpCapabilities {
    http: Option<bool>,
}

/// A login method.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct AcpAuthMethod {
    name: Option<String>,
    description: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpOpenSession<'a> {
    /// Set to resume a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    pub(super) cwd: &'a Path,
    pub(super) mcp_servers: Vec<AcpMcpServer<'a>>,
}

/// Our MCP server. Contains a secret, so it has no `Debug`.
#[derive(Serialize)]
pub(super) struct AcpMcpServer<'a> {
    r#type: &'static str,
    name: &'static str,
    url: &'a str,
    headers: [AcpHttpHeader; 1],
}

#[derive(Serialize)]
struct AcpHttpHeader {
    name: &'static str,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpSession {
    pub(super) session_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpPrompt<'a> {
    pub(super) session_id: &'a str,
    pub(super) prompt: Vec<AcpPromptBlock<'a>>,
}

/// One content block of a prompt.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum AcpPromptBlock<'a> {
    Text { text: &'a str },
    Image { mime_type: String, data: String },
    Audio { mime_type: String, data: String },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpCancel<'a> {
    pub(super) session_id: &'a str,
}

/// The end of a turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpTurnEnd {
    pub(super) stop_reason: String,
    usage: Option<AcpTokens>,
    #[serde(rename = "_meta")]
    meta: Option<AcpTurnEndMeta>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AcpTokens {
    total_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Gemini's place for token counts.
#[derive(Debug, Deserialize)]
struct AcpTurnEndMeta {
    quota: Option<GeminiQuota>,
}

#[derive(Debug, Deserialize)]
struct GeminiQuota {
    token_count: Option<GeminiTokenCount>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct GeminiTokenCount {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpPermissionRequest {
    pub(super) tool_call: AcpToolCall,
    pub(super) options: Vec<AcpPermissionOption>,
}

/// One of the answers an agent offers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpPermissionOption {
    pub(super) option_id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct AcpPermissionResponse {
    pub(super) outcome: AcpPermissionOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum AcpPermissionOutcome {
    Cancelled,
    Selected {
        #[serde(rename = "optionId")]
        option_id: String,
    },
}

// === impl AcpInitialize ===

impl AcpInitialize {
    /// No file or terminal capabilities: there are no unsaved editor buffers here, so an agent gains nothing from going
    /// through us.
    pub(super) const fn this_client() -> Self {
        Self {
            protocol_version: VERSION,
            client_capabilities: AcpClientCapabilities {
                fs: AcpFileCapabilities { read_text_file: false, write_text_file: false },
                terminal: false,
            },
            client_info: AcpClientInfo {
                name: "attache-adapter",
                title: "Attaché",
                version: env!("CARGO_PKG_VERSION"),
            },
        }
    }
}

// === impl AcpAgent ===

impl AcpAgent {
    pub(super) fn speaks_our_version(&self) -> bool {
        self.protocol_version.as_ref().is_some_and(|version| version.parse().is_ok_and(|number: u16| number == VERSION))
    }

    pub(super) fn loads_sessions(&self) -> bool {
        self.agent_capabilities.as_ref().and_then(|can| can.load_session).unwrap_or_default()
    }

    pub(super) fn takes_http_tools(&self) -> bool {
        let mcp = self.agent_capabilities.as_ref().and_then(|can| can.mcp_capabilities.as_ref());
        mcp.and_then(|mcp| mcp.http).unwrap_or_default()
    }

    /// Whether a prompt may contain this media type.
    pub(super) fn takes(&self, media_type: &str) -> bool {
        let can = self.agent_capabilities.as_ref().and_then(|can| can.prompt_capabilities.as_ref());
        match media_type.split('/').next() {
            Some("image") => can.and_then(|can| can.image).unwrap_or_default(),
            Some("audio") => can.and_then(|can| can.audio).unwrap_or_default(),
            _ => false,
        }
    }

    /// The login methods, for people.
    pub(super) fn logins(&self) -> Vec<String> {
        let methods = self.auth_methods.iter().flatten();
        methods
            .filter_map(|method| match (&method.name, &method.description) {
                (Some(name), Some(description)) if name != description => Some(format!("{name} ({description})")),
                (Some(name), _) => Some(name.clone()),
                (None, description) => description.clone(),
            })
            .collect()
    }
}

// === impl AcpMcpServer ===

impl<'a> AcpMcpServer<'a> {
    pub(super) fn of(tools: &'a RunTools) -> Self {
        let header = AcpHttpHeader { name: "Authorization", value: format!("Bearer {}", tools.token) };
        Self { r#type: "http", name: TOOLS_SERVER, url: &tools.url, headers: [header] }
    }
}

impl std::fmt::Debug for AcpMcpServer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl AcpPromptBlock ===

impl<'a> AcpPromptBlock<'a> {
    pub(super) const fn text(text: &'a str) -> Self {
        Self::Text { text }
    }

    /// `None` unless it is an image or audio.
    pub(super) fn of(attachment: &Attachment) -> Option<Self> {
        let (mime_type, data) = (attachment.kind(), attachment.base64()?);
        match mime_type.split('/').next()? {
            "image" => Some(Self::Image { mime_type, data }),
            "audio" => Some(Self::Audio { mime_type, data }),
            _ => None,
        }
    }
}

// === impl AcpTurnEnd ===

impl AcpTurnEnd {
    /// Token usage of the turn, wherever the agent reports it.
    pub(super) fn usage(&self) -> Option<HostUsage> {
        let counted = self.meta.as_ref().and_then(|meta| meta.quota.as_ref()?.token_count);
        let tokens = self.usage.or_else(|| {
            let GeminiTokenCount { input_tokens, output_tokens } = counted?;
            Some(AcpTokens { total_tokens: None, input_tokens, output_tokens })
        })?;
        let both = || Some(tokens.input_tokens?.saturating_add(tokens.output_tokens?));
        Some(HostUsage {
            tokens: tokens.total_tokens.or_else(both),
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            ..HostUsage::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    #[test]
    fn usage_is_found_where_agents_put_it() {
        let usage = |text: &str| json(text).parse::<AcpTurnEnd>().unwrap().usage();
        let standard = r#"{"stopReason":"end_turn","usage":{"totalTokens":9,"inputTokens":3,"outputTokens":4}}"#;
        assert_eq!(usage(standard), Some(HostUsage { tokens: Some(9), ..HostUsage::of_tokens(3, 4) }));
        let gemini =
            r#"{"stopReason":"end_turn","_meta":{"quota":{"token_count":{"input_tokens":3,"output_tokens":4}}}}"#;
        assert_eq!(usage(gemini), Some(HostUsage::of_tokens(3, 4)));
        assert_eq!(usage(r#"{"stopReason":"end_turn","_meta":{}}"#), None);
    }

    #[test]
    fn agent_capabilities_are_read() {
        let agent: AcpAgent = json(
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true}},
                "authMethods":[{"id":"a","name":"Log in","description":"Run `x login`"},{"id":"b","name":"Key"}]}"#,
        )
        .parse()
        .unwrap();
        assert!(agent.speaks_our_version() && agent.loads_sessions() && agent.takes_http_tools());
        assert_eq!(agent.logins(), ["Log in (Run `x login`)", "Key"]);
        let bare: AcpAgent = json("{}").parse().unwrap();
        assert!(!bare.speaks_our_version() && !bare.loads_sessions() && !bare.takes_http_tools());
    }

    #[test]
    fn our_tools_reach_the_agent_but_never_a_log() {
        let tools = RunTools { url: "http://127.0.0.1:1/mcp".to_owned(), token: "secret".to_owned() };
        let open =
            AcpOpenSession { session_id: None, cwd: Path::new("/w"), mcp_servers: vec![AcpMcpServer::of(&tools)] };
        let expected = r#"{"cwd":"/w","mcpServers":[{"type":"http","name":"attache_run","url":"http://127.0.0.1:1/mcp","headers":[{"name":"Authorization","value":"Bearer secret"}]}]}"#;
        assert_eq!(Json::of(&open).get(), expected);
        assert!(!format!("{open:?}").contains("secret"));
    }
}
