//! Permission requests, decisions and grants.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AgentId, ChannelId, ConversationId, GrantId, Json, PermissionId, RunId, RuntimeId, Timestamp,
    rules::{
        permission::{DecisionScope, DecisionSource, OnTimeout, OnceReason, PermissionState},
        permission_mode::PermissionMode,
    },
    wire::account::ApprovalConfirmation,
};

/// A worker asks for permission for a risky step. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatePermissionRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The tool, process or action.
    pub tool: String,
    /// The exact input.
    pub input: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A level such as `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// The proposed change as a unified diff, if the agent provides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent doesn't disclose: `input`, `paths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
    /// What the device vouches for: `folder_edit`, `in_folder`, `walled`. Other words are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assured: Vec<String>,
    /// The worker's id for this request. Asking again with the same id returns the same request. Without an id, the
    /// same question returns the pending request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The response to [`CreatePermissionRequest`] and to `GET …/permission-requests/{prm}?wait_ms=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionAnswer {
    pub permission_request_id: PermissionId,
    pub state: PermissionState,
    /// Null while undecided. `false` if it expired or was cancelled.
    pub approved: Option<bool>,
    pub scope: Option<DecisionScope>,
    pub comment: Option<String>,
}

/// A permission request, for the people who decide. Text from the agent is untrusted data: show it inert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionRequest {
    pub permission_request_id: PermissionId,
    pub task_run_id: RunId,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub conversation_id: ConversationId,
    pub runtime_id: RuntimeId,
    /// The channel it came over. Null over HTTP.
    pub channel_id: Option<ChannelId>,
    pub epoch: i64,
    pub tool: String,
    pub input: Json,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// The proposed change as a unified diff, if the agent provides it.
    #[serde(default)]
    pub diff: Option<String>,
    /// What the agent doesn't disclose: `input`, `paths`.
    #[serde(default)]
    pub undisclosed: Vec<String>,
    /// Why an approval must have the scope `once`. Null if it may stand.
    #[serde(default)]
    pub once: Option<OnceReason>,
    /// Hex hash of tool, input, cwd, paths, diff and undisclosed members. The decision is bound to it.
    pub subject: String,
    /// What an approval of it needs.
    #[serde(default)]
    pub confirm_approvals: ApprovalConfirmation,
    pub state: PermissionState,
    pub requested_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    pub approved: Option<bool>,
    /// Who decided, as `kind:id`.
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    pub source: Option<DecisionSource>,
    /// The surface and address of the decision.
    pub decided_via: Option<String>,
    pub decided_from: Option<String>,
    pub scope: Option<DecisionScope>,
    pub tool_pattern: Option<String>,
    pub until: Option<Timestamp>,
    pub this_channel_only: bool,
    pub comment: Option<String>,
    /// The grant it created, or that answered it.
    pub grant_id: Option<GrantId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionList {
    pub permission_requests: Vec<PermissionRequest>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecisionRequest {
    pub approved: bool,
    #[serde(default)]
    pub scope: DecisionScope,
    /// With a scope other than `once`: covers every tool whose name matches (`*` matches any characters), whatever its
    /// input. Without it, the grant covers only the same tool, input, cwd and paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default)]
    pub this_channel_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// 409: someone else decided first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AlreadyDecided {
    pub error: crate::error::ErrorDetail,
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    pub permission_request: PermissionRequest,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionGrant {
    pub grant_id: GrantId,
    pub approved: bool,
    pub scope: DecisionScope,
    pub agent_id: AgentId,
    pub task_run_id: Option<RunId>,
    pub conversation_id: Option<ConversationId>,
    pub channel_id: Option<ChannelId>,
    pub tool_pattern: Option<String>,
    /// Hex. Null if the grant uses a pattern.
    pub subject: Option<String>,
    pub until: Option<Timestamp>,
    /// The request whose decision created it.
    pub permission_request_id: PermissionId,
    pub created_by: String,
    pub created_at: Timestamp,
    /// When its run ended.
    pub ended_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantList {
    pub permission_grants: Vec<PermissionGrant>,
    pub next_cursor: Option<String>,
}

/// `approvals` of an agent account: which requests need a person, how they time out, and who is notified.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Notified of every request of this agent that waits for a person. Query values are shown as `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
    /// Which steps need no approval by a person. `ask` unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<PermissionMode>,
    /// Commands that need no approval either: words, where `*` matches any one word or, at the end, any number of them
    /// (`git diff *`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_commands: Vec<String>,
}

// === impl PermissionGrant ===

impl PermissionGrant {
    /// When it stopped or will stop applying on its own: at its expiry or with its run.
    pub fn ends_at(&self) -> Option<Timestamp> {
        [self.until, self.ended_at].into_iter().flatten().min()
    }
}

// === impl PermissionAnswer ===

impl From<&PermissionRequest> for PermissionAnswer {
    fn from(request: &PermissionRequest) -> Self {
        Self {
            permission_request_id: request.permission_request_id,
            state: request.state,
            approved: request.approved,
            scope: request.scope,
            comment: request.comment.clone(),
        }
    }
}

// === impl PermissionRequest ===

impl PermissionRequest {
    /// A description of a step whose input is not disclosed. `None` if it is.
    pub fn without_input(&self) -> Option<String> {
        without_input(&self.input, &self.undisclosed, self.reason.as_deref(), &self.paths)
    }
}

/// A description of a step whose input is not disclosed: the reason and the folder. `None` if it is disclosed.
pub fn without_input(input: &Json, undisclosed: &[String], reason: Option<&str>, paths: &[String]) -> Option<String> {
    if !undisclosed.iter().any(|what| what == "input") || !matches!(input.get(), "{}" | "null" | "\"\"") {
        return None;
    }
    let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
    let known = reason.or_else(|| paths.first().map(String::as_str));
    Some(known.map_or_else(|| "not disclosed".to_owned(), |known| format!("{known} (input not disclosed)")))
}
