//! The messages of `codex app-server` that we use, as of version 0.166. Everything else is ignored.

use attache_protocol::{Json, Timestamp};
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::HostUsage;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexInitialize {
    client_info: CodexClientInfo,
    capabilities: CodexClientCapabilities,
}

#[derive(Debug, Serialize)]
struct CodexClientInfo {
    name: &'static str,
    title: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CodexClientCapabilities {
    /// Required for raw events, the only source that says whether a command asks to leave the sandbox.
    experimental_api: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexInitialized {
    pub(super) codex_home: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexAccountRead {
    pub(super) account: Option<Json>,
    pub(super) requires_openai_auth: bool,
}

/// Parameters of `thread/start` and `thread/resume`. The configuration contains a secret, so this has no `Debug`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexOpenThread<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<&'a str>,
    pub(super) cwd: &'a str,
    pub(super) approval_policy: CodexApprovalPolicy,
    /// Otherwise the user's settings could let a model approve.
    pub(super) approvals_reviewer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sandbox: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) developer_instructions: Option<&'a str>,
    pub(super) config: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ephemeral: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) experimental_raw_events: Option<bool>,
}

/// When Codex asks for approval.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(untagged)]
pub(super) enum CodexApprovalPolicy {
    /// Asks before each command and patch, unless the user's rules allow them.
    Asking(&'static str),
    Granular {
        granular: CodexGranularApproval,
    },
}

/// The approvals that Codex may ask for. Everything else is refused.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CodexGranularApproval {
    sandbox_approval: bool,
    rules: bool,
    mcp_elicitations: bool,
    request_permissions: bool,
    skill_approval: bool,
}

// === impl CodexApprovalPolicy ===

impl CodexApprovalPolicy {
    /// For a run with limits: everything the sandbox permits is allowed, and nothing can leave the sandbox, even with
    /// an approval.
    pub(super) const WITHIN_LIMITS: Self = Self::Granular {
        granular: CodexGranularApproval {
            sandbox_approval: false,
            rules: false,
            mcp_elicitations: true,
            request_permissions: false,
            skill_approval: false,
        },
    };
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexThreadOpened {
    pub(super) thread: CodexId,
    #[serde(default)]
    pub(super) active_permission_profile: Option<CodexId>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexId {
    pub(super) id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexStartTurn<'a> {
    pub(super) thread_id: &'a str,
    pub(super) input: Vec<CodexInput<'a>>,
}

/// Adds a message to a running turn.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexSteerTurn<'a> {
    pub(super) thread_id: &'a str,
    pub(super) expected_turn_id: &'a str,
    pub(super) input: Vec<CodexInput<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum CodexInput<'a> {
    Text {
        text: &'a str,
    },
    /// A `data:` URL.
    Image {
        url: String,
    },
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexTurnStarted {
    pub(super) turn: CodexId,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexInterrupt<'a> {
    pub(super) thread_id: &'a str,
    pub(super) turn_id: &'a str,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexDelta {
    #[serde(default)]
    pub(super) thread_id: String,
    #[serde(default)]
    pub(super) item_id: String,
    #[serde(default)]
    pub(super) delta: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexItemEvent {
    #[serde(default)]
    pub(super) thread_id: String,
    pub(super) item: CodexItem,
}

/// One item of a turn. Which members are present depends on its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexItem {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) status: Option<String>,
    pub(super) text: Option<String>,
    pub(super) command: Option<String>,
    pub(super) cwd: Option<String>,
    pub(super) aggregated_output: Option<String>,
    pub(super) exit_code: Option<i64>,
    pub(super) changes: Vec<CodexFileChange>,
    pub(super) server: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) arguments: Option<Json>,
    pub(super) result: Option<Json>,
    pub(super) error: Option<Json>,
    pub(super) query: Option<String>,
}

/// A patch to one file. For an added or deleted file, `diff` is its content.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct CodexFileChange {
    pub(super) path: String,
    pub(super) kind: CodexChangeKind,
    #[serde(default)]
    pub(super) diff: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub(super) enum CodexChangeKind {
    Add,
    Delete,
    Update {
        move_path: Option<String>,
    },
    #[serde(other)]
    Other,
}

/// `rawResponseItem/completed`: the model's original output.
#[derive(Debug, Deserialize)]
pub(super) struct CodexRawEvent {
    pub(super) item: CodexRawItem,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CodexRawItem {
    FunctionCall {
        call_id: String,
        #[serde(default)]
        arguments: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexUsageEvent {
    #[serde(default)]
    pub(super) thread_id: String,
    token_usage: CodexTokenUsage,
}

#[derive(Debug, Deserialize)]
struct CodexTokenUsage {
    total: CodexTokens,
}

/// Parameters of `account/rateLimits/updated`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexRateLimitsEvent {
    pub(super) rate_limits: CodexRateLimits,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexRateLimits {
    primary: Option<CodexRateLimitWindow>,
    secondary: Option<CodexRateLimitWindow>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CodexRateLimitWindow {
    used_percent: f64,
    /// Unix time in seconds.
    resets_at: Option<i64>,
}

// === impl CodexRateLimits ===

impl CodexRateLimits {
    fn windows(&self) -> impl Iterator<Item = CodexRateLimitWindow> {
        [self.primary, self.secondary].into_iter().flatten()
    }

    /// When the exhausted limit resets.
    pub(super) fn resets_at(&self) -> Option<Timestamp> {
        let spent = self.windows().filter(|window| window.used_percent >= 100.0);
        spent.filter_map(|window| window.resets_at?.checked_mul(1000).map(Timestamp::from_millis)).max()
    }

    /// A warning before the limit is reached.
    pub(super) fn warning(&self) -> Option<String> {
        let used = self.windows().map(|window| window.used_percent).fold(0.0, f64::max);
        (95.0..100.0).contains(&used).then(|| format!("{used:.0}% of the account's usage limit is used"))
    }
}

/// A thread's total over all its turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexTokens {
    input_tokens: u64,
    output_tokens: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexErrorEvent {
    pub(super) error: CodexTurnError,
    #[serde(default)]
    pub(super) will_retry: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexTurnError {
    #[serde(default)]
    pub(super) message: String,
    /// A string, or an object whose only key is that string.
    pub(super) codex_error_info: Option<Json>,
    pub(super) additional_details: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexTurnEvent {
    #[serde(default)]
    pub(super) thread_id: String,
    pub(super) turn: CodexTurnEnd,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct CodexTurnEnd {
    #[serde(default)]
    pub(super) status: String,
    pub(super) error: Option<CodexTurnError>,
    #[serde(default, deserialize_with = "those_that_can_be_read")]
    pub(super) items: Vec<CodexItem>,
}

/// An item of an unknown kind must not hide the end of the turn.
fn those_that_can_be_read<'de, D: Deserializer<'de>>(items: D) -> Result<Vec<CodexItem>, D::Error> {
    let items = Option::<Vec<Json>>::deserialize(items)?.unwrap_or_default();
    Ok(items.iter().filter_map(|item| item.parse().ok()).collect())
}

/// `mcpServer/startupStatus/updated`.
#[derive(Debug, Deserialize)]
pub(super) struct CodexMcpServerStatus {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) status: String,
    pub(super) error: Option<String>,
}

// === impl CodexInitialize ===

impl CodexInitialize {
    pub(super) const fn this_client() -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            client_info: CodexClientInfo { name: "attache", title: "Attaché", version },
            capabilities: CodexClientCapabilities { experimental_api: true },
        }
    }
}

// === impl CodexUsageEvent ===

impl CodexUsageEvent {
    pub(super) const fn total(&self) -> CodexTokens {
        self.token_usage.total
    }
}

// === impl CodexTokens ===

impl CodexTokens {
    pub(super) fn sum(threads: impl IntoIterator<Item = Self>) -> Self {
        threads.into_iter().fold(Self::default(), |sum, thread| Self {
            input_tokens: sum.input_tokens.saturating_add(thread.input_tokens),
            output_tokens: sum.output_tokens.saturating_add(thread.output_tokens),
        })
    }

    /// Without the usage before this run.
    pub(super) fn since(self, before: Self) -> HostUsage {
        HostUsage::of_tokens(
            self.input_tokens.saturating_sub(before.input_tokens),
            self.output_tokens.saturating_sub(before.output_tokens),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: serde::de::DeserializeOwned>(text: &str) -> T {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn items_of_the_real_program_are_read() {
        let event: CodexItemEvent = read(
            r#"{"item":{"type":"commandExecution","id":"call_1","pluginId":null,"scriptPath":null,"command":"/bin/bash -lc ls",
            "cwd":"/ws","processId":"46041","source":"unifiedExecStartup","status":"failed","commandActions":[{"type":
            "listFiles","command":"ls","path":null}],"aggregatedOutput":"no\n","exitCode":1,"durationMs":210,"startedAtMs":1,
            "completedAtMs":2},"threadId":"t","turnId":"u","completedAtMs":2}"#,
        );
        let expected = CodexItem {
            kind: "commandExecution".to_owned(),
            id: "call_1".to_owned(),
            status: Some("failed".to_owned()),
            command: Some("/bin/bash -lc ls".to_owned()),
            cwd: Some("/ws".to_owned()),
            aggregated_output: Some("no\n".to_owned()),
            exit_code: Some(1),
            ..CodexItem::default()
        };
        assert_eq!(event.item, expected);
        let event: CodexItemEvent = read(
            r#"{"item":{"type":"fileChange","id":"call_2","changes":[{"path":"/ws/a","kind":{"type":"update","move_path":null},
            "diff":"@@ -1 +1 @@\n-old\n+new\n"},{"path":"/ws/b","kind":{"type":"add"},"diff":"hi\n"}],"status":"inProgress"}}"#,
        );
        let update = CodexChangeKind::Update { move_path: None };
        let change =
            |path: &str, kind, diff: &str| CodexFileChange { path: path.to_owned(), kind, diff: diff.to_owned() };
        let expected =
            [change("/ws/a", update, "@@ -1 +1 @@\n-old\n+new\n"), change("/ws/b", CodexChangeKind::Add, "hi\n")];
        assert_eq!(event.item.changes, expected);
    }

    #[test]
    fn raw_events_show_whether_a_command_leaves_the_sandbox() {
        let event: CodexRawEvent = read(
            r#"{"threadId":"t","turnId":"u","item":{"type":"function_call","status":"completed","id":"i","name":"exec_command",
            "arguments":"{\"cmd\":\"ls\",\"sandbox_permissions\":\"require_escalated\"}","call_id":"call_1"}}"#,
        );
        let CodexRawItem::FunctionCall { call_id, arguments } = event.item else { panic!("a call is expected") };
        assert_eq!((call_id.as_str(), arguments.contains("require_escalated")), ("call_1", true));
        let event: CodexRawEvent = read(r#"{"item":{"type":"message","id":"m","role":"user","content":[]}}"#);
        assert!(matches!(event.item, CodexRawItem::Other));
    }

    #[test]
    fn usage_before_the_run_does_not_count() {
        let event: CodexUsageEvent = read(
            r#"{"threadId":"t","turnId":"u","tokenUsage":{"total":{"totalTokens":36,"inputTokens":22,"cachedInputTokens":0,
            "cacheWriteInputTokens":0,"outputTokens":14,"reasoningOutputTokens":0},"last":{"totalTokens":18,"inputTokens":11,
            "cachedInputTokens":0,"outputTokens":7,"reasoningOutputTokens":0},"modelContextWindow":258400}}"#,
        );
        let before = CodexTokens { input_tokens: 11, output_tokens: 7 };
        assert_eq!(event.total().since(before), HostUsage::of_tokens(11, 7));
        assert_eq!(
            CodexTokens::sum([event.total(), before]).since(CodexTokens::default()),
            HostUsage::of_tokens(33, 21)
        );
    }
}
