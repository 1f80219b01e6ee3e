//! The few messages of the Agent Client Protocol, version 1, that a run needs. What an agent adds is ignored, what it leaves
//! out is none, and what people are asked about stays the text it came in.

use std::path::{Path, PathBuf};

use attache_protocol::{Json, wire::adapter::Tools};
use serde::{Deserialize, Serialize};

use crate::host::Usage;

/// The version that this driver speaks.
pub(super) const VERSION: u16 = 1;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialize {
    protocol_version: u16,
    client_capabilities: ClientCapabilities,
    client_info: Info,
}

#[derive(Debug, Serialize)]
struct ClientCapabilities {
    fs: FileCapabilities,
    terminal: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FileCapabilities {
    read_text_file: bool,
    write_text_file: bool,
}

#[derive(Debug, Serialize)]
struct Info {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

/// What an agent says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agent {
    pub(super) protocol_version: Option<Json>,
    agent_capabilities: Option<AgentCapabilities>,
    auth_methods: Option<Vec<Method>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AgentCapabilities {
    load_session: Option<bool>,
    mcp_capabilities: Option<McpCapabilities>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct McpCapabilities {
    http: Option<bool>,
}

/// A way to log in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Method {
    name: Option<String>,
    description: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenSession<'a> {
    /// Of a session to take up again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    pub(super) cwd: &'a Path,
    pub(super) mcp_servers: Vec<McpServer<'a>>,
}

/// Our tools. It holds a secret, and so it has no way to be printed.
#[derive(Serialize)]
pub(super) struct McpServer<'a> {
    r#type: &'static str,
    name: &'static str,
    url: &'a str,
    headers: [Header; 1],
}

#[derive(Serialize)]
struct Header {
    name: &'static str,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Opened {
    pub(super) session_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompt<'a> {
    pub(super) session_id: &'a str,
    pub(super) prompt: [Text<'a>; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct Text<'a> {
    r#type: &'static str,
    text: &'a str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cancel<'a> {
    pub(super) session_id: &'a str,
}

/// The end of a turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ended {
    pub(super) stop_reason: String,
    usage: Option<Tokens>,
    #[serde(rename = "_meta")]
    meta: Option<EndMeta>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tokens {
    total_tokens: Option<u64>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// Where Gemini counts.
#[derive(Debug, Deserialize)]
struct EndMeta {
    quota: Option<Quota>,
}

#[derive(Debug, Deserialize)]
struct Quota {
    token_count: Option<TokenCount>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct TokenCount {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// What an agent tells while it works.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    Said(String),
    Thought(String),
    Call(Box<Call>),
    Plan(String),
    Used(Usage),
    /// Of no use to a run, or new.
    Other,
}

#[derive(Debug, Deserialize)]
struct Updated {
    update: Json,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tag {
    session_update: String,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    content: Block,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Block {
    text: Option<String>,
    resource: Option<Resource>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Resource {
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Plan {
    entries: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Entry {
    content: Option<String>,
    status: Option<String>,
}

#[derive(Debug, Deserialize)]
struct UsageUpdate {
    used: Option<u64>,
    cost: Option<Cost>,
}

#[derive(Debug, Deserialize)]
struct Cost {
    amount: Option<f64>,
    currency: Option<String>,
}

/// A use of a tool, or what is new about one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    #[serde(default)]
    pub(super) tool_call_id: String,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) content: Option<Vec<Content>>,
    pub(super) locations: Option<Vec<Location>>,
    pub(super) raw_input: Option<Json>,
    pub(super) raw_output: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    pub(super) content: Option<Block>,
    pub(super) path: Option<String>,
    pub(super) old_text: Option<String>,
    pub(super) new_text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Location {
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AskedLeave {
    pub(super) tool_call: Call,
    pub(super) options: Vec<Choice>,
}

/// One of the answers that an agent offers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Choice {
    pub(super) option_id: String,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Leave {
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(super) enum Outcome {
    Cancelled,
    Selected {
        #[serde(rename = "optionId")]
        option_id: String,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct ReadFile {
    pub(super) path: PathBuf,
    /// The first line, from 1.
    pub(super) line: Option<usize>,
    pub(super) limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(super) struct FileContent {
    pub(super) content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct WriteFile {
    pub(super) path: PathBuf,
    pub(super) content: String,
}

// === impl Initialize ===

impl Initialize {
    /// Files only, and those only below the run's folder; no terminals.
    pub(super) const fn ours() -> Self {
        Self {
            protocol_version: VERSION,
            client_capabilities: ClientCapabilities {
                fs: FileCapabilities { read_text_file: true, write_text_file: true },
                terminal: false,
            },
            client_info: Info { name: "attache-adapter", title: "Attaché", version: env!("CARGO_PKG_VERSION") },
        }
    }
}

// === impl Agent ===

impl Agent {
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

    /// The ways to log in, for people.
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

// === impl McpServer ===

impl<'a> McpServer<'a> {
    pub(super) fn of(tools: &'a Tools) -> Self {
        let header = Header { name: "Authorization", value: format!("Bearer {}", tools.token) };
        Self { r#type: "http", name: "attache", url: &tools.url, headers: [header] }
    }
}

impl std::fmt::Debug for McpServer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpServer").field("url", &self.url).finish_non_exhaustive()
    }
}

// === impl Text ===

impl<'a> Text<'a> {
    pub(super) const fn of(text: &'a str) -> Self {
        Self { r#type: "text", text }
    }
}

// === impl Ended ===

impl Ended {
    /// What the turn used, wherever the agent puts it.
    pub(super) fn usage(&self) -> Option<Usage> {
        let counted = self.meta.as_ref().and_then(|meta| meta.quota.as_ref()?.token_count);
        let tokens = self.usage.or_else(|| {
            let TokenCount { input_tokens, output_tokens } = counted?;
            Some(Tokens { total_tokens: None, input_tokens, output_tokens })
        })?;
        let both = || Some(tokens.input_tokens?.saturating_add(tokens.output_tokens?));
        Some(Usage {
            tokens: tokens.total_tokens.or_else(both),
            input_tokens: tokens.input_tokens,
            output_tokens: tokens.output_tokens,
            ..Usage::default()
        })
    }
}

// === impl Update ===

impl Update {
    /// Of the parameters of `session/update`.
    pub(super) fn read(params: &Json) -> Self {
        Self::try_read(params).unwrap_or(Self::Other)
    }

    fn try_read(params: &Json) -> Option<Self> {
        let update = params.parse::<Updated>().ok()?.update;
        let text = || Some(update.parse::<Chunk>().ok()?.content.into_text().unwrap_or_default());
        Some(match update.parse::<Tag>().ok()?.session_update.as_str() {
            "agent_message_chunk" => Self::Said(text()?),
            "agent_thought_chunk" => Self::Thought(text()?),
            "tool_call" | "tool_call_update" => Self::Call(Box::new(update.parse().ok()?)),
            "plan" => Self::Plan(update.parse::<Plan>().ok()?.to_text()),
            "usage_update" => Self::Used(update.parse::<UsageUpdate>().ok()?.to_usage()),
            _ => Self::Other,
        })
    }
}

// === impl Block ===

impl Block {
    /// Pictures and sounds have none.
    pub(super) fn into_text(self) -> Option<String> {
        self.text.or_else(|| self.resource?.text)
    }
}

// === impl Plan ===

impl Plan {
    fn to_text(&self) -> String {
        let line = |entry: &Entry| {
            let mark = match entry.status.as_deref() {
                Some("completed") => "[x]",
                Some("in_progress") => "[>]",
                _ => "[ ]",
            };
            format!("\n{mark} {}", entry.content.as_deref().unwrap_or_default())
        };
        format!("plan:{}", self.entries.iter().flatten().map(line).collect::<String>())
    }
}

// === impl UsageUpdate ===

impl UsageUpdate {
    /// `used` is what the context holds now: the run has used that many tokens at least.
    fn to_usage(&self) -> Usage {
        let usage = Usage { tokens: self.used, ..Usage::default() };
        let dollars = |cost: &&Cost| cost.currency.as_deref().is_none_or(|currency| currency == "USD");
        let cost = self.cost.as_ref().filter(dollars).and_then(|cost| cost.amount);
        cost.map_or(usage, |amount| usage.with_cost(amount))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    fn update(text: &str) -> Update {
        Update::read(&json(&format!(r#"{{"sessionId":"s","update":{text}}}"#)))
    }

    #[test]
    fn updates_are_read_and_new_kinds_passed_over() {
        let said = update(r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"hi"}}"#);
        assert_eq!(said, Update::Said("hi".to_owned()));
        let thought = update(r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#);
        assert_eq!(thought, Update::Thought("hm".to_owned()));
        let plan = update(
            r#"{"sessionUpdate":"plan","entries":[{"content":"a","status":"completed"},{"content":"b","status":"pending"}]}"#,
        );
        assert_eq!(plan, Update::Plan("plan:\n[x] a\n[ ] b".to_owned()));
        let used =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":0.5,"currency":"USD"}}"#);
        assert_eq!(used, Update::Used(Usage { tokens: Some(7), ..Usage::default() }.with_cost(0.5)));
        let euros =
            update(r#"{"sessionUpdate":"usage_update","used":7,"size":9,"cost":{"amount":1,"currency":"EUR"}}"#);
        assert_eq!(euros, Update::Used(Usage { tokens: Some(7), ..Usage::default() }));
        for other in
            [r#"{"sessionUpdate":"user_message_chunk"}"#, r#"{"sessionUpdate":"tool_call","locations":3}"#, "1"]
        {
            assert_eq!(update(other), Update::Other, "{other}");
        }
    }

    #[test]
    fn what_a_tool_gets_stays_as_it_was_written() {
        let call =
            update(r#"{"sessionUpdate":"tool_call","toolCallId":"c","title":null,"rawInput":{"n": 1E400,"n":2}}"#);
        let expected =
            Call { tool_call_id: "c".to_owned(), raw_input: Some(json(r#"{"n": 1E400,"n":2}"#)), ..Call::default() };
        assert_eq!(call, Update::Call(Box::new(expected)));
    }

    #[test]
    fn usage_is_found_where_agents_put_it() {
        let usage = |text: &str| json(text).parse::<Ended>().unwrap().usage();
        let standard = r#"{"stopReason":"end_turn","usage":{"totalTokens":9,"inputTokens":3,"outputTokens":4}}"#;
        assert_eq!(usage(standard), Some(Usage { tokens: Some(9), ..Usage::of_tokens(3, 4) }));
        let gemini =
            r#"{"stopReason":"end_turn","_meta":{"quota":{"token_count":{"input_tokens":3,"output_tokens":4}}}}"#;
        assert_eq!(usage(gemini), Some(Usage::of_tokens(3, 4)));
        assert_eq!(usage(r#"{"stopReason":"end_turn","_meta":{}}"#), None);
    }

    #[test]
    fn an_agent_says_what_it_can() {
        let agent: Agent = json(
            r#"{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true}},
                "authMethods":[{"id":"a","name":"Log in","description":"Run `x login`"},{"id":"b","name":"Key"}]}"#,
        )
        .parse()
        .unwrap();
        assert!(agent.speaks_our_version() && agent.loads_sessions() && agent.takes_http_tools());
        assert_eq!(agent.logins(), ["Log in (Run `x login`)", "Key"]);
        let bare: Agent = json("{}").parse().unwrap();
        assert!(!bare.speaks_our_version() && !bare.loads_sessions() && !bare.takes_http_tools());
    }

    #[test]
    fn our_tools_reach_the_agent_and_no_log() {
        let tools = Tools { url: "http://127.0.0.1:1/mcp".to_owned(), token: "secret".to_owned() };
        let open = OpenSession { session_id: None, cwd: Path::new("/w"), mcp_servers: vec![McpServer::of(&tools)] };
        let expected = r#"{"cwd":"/w","mcpServers":[{"type":"http","name":"attache","url":"http://127.0.0.1:1/mcp","headers":[{"name":"Authorization","value":"Bearer secret"}]}]}"#;
        assert_eq!(Json::of(&open).get(), expected);
        assert!(!format!("{open:?}").contains("secret"));
    }
}
