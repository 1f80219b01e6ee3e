//! Permission requests, the decisions on them, and the grants that decisions leave behind.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AgentId, ChannelId, ConversationId, GrantId, Json, PermissionId, RunId, RuntimeId, Timestamp,
    rules::permission::{DecisionScope, DecisionSource, OnTimeout, PermissionState, hides_input},
};

/// A worker asks for a risky step. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatePermissionRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The tool, process or action.
    pub tool: String,
    /// What it would be given, exactly.
    pub input: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A word such as `low`, `medium` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<String>,
    /// What would change, as a unified diff, where the agent tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent does not tell: `input`, `paths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
    /// The asker's own name for this question: asking again with the same one gives the same request back. Without it,
    /// asking for the same thing while it is pending does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The answer to [`CreatePermissionRequest`], and of `GET …/permission-requests/{prm}?wait_ms=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionAnswer {
    pub permission_request_id: PermissionId,
    pub state: PermissionState,
    /// Null while nobody has decided; `false` when it expired or was cancelled.
    pub approved: Option<bool>,
    pub scope: Option<DecisionScope>,
    pub comment: Option<String>,
}

/// A permission request as the people who decide see it. Text that an agent gave is data: show it inert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionRequest {
    pub permission_request_id: PermissionId,
    pub task_run_id: RunId,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub conversation_id: ConversationId,
    pub runtime_id: RuntimeId,
    /// The channel over which it was asked; null over HTTP.
    pub channel_id: Option<ChannelId>,
    pub epoch: i64,
    pub tool: String,
    pub input: Json,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// What would change, as a unified diff, where the agent tells it.
    #[serde(default)]
    pub diff: Option<String>,
    /// What the agent does not tell: `input`, `paths`.
    #[serde(default)]
    pub undisclosed: Vec<String>,
    /// Hex of the hash over tool, input, cwd, paths, diff and what is undisclosed: what a decision is bound to.
    pub subject: String,
    pub state: PermissionState,
    pub requested_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub on_timeout: OnTimeout,
    pub approved: Option<bool>,
    /// Who decided, as `kind:id`.
    pub decided_by: Option<String>,
    pub decided_at: Option<Timestamp>,
    pub source: Option<DecisionSource>,
    /// Over which surface, and from which address.
    pub decided_via: Option<String>,
    pub decided_from: Option<String>,
    pub scope: Option<DecisionScope>,
    pub tool_pattern: Option<String>,
    pub until: Option<Timestamp>,
    pub this_channel_only: bool,
    pub comment: Option<String>,
    /// The grant that it left behind, or that answered it.
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
    /// With a scope beyond `once`: every tool whose name fits (`*` stands for any characters), whatever its input. Without
    /// it the grant holds for exactly the same tool, input, cwd and paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_pattern: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    #[serde(default)]
    pub this_channel_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

/// 409: somebody was first.
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
    /// Hex; null when a pattern says what is meant.
    pub subject: Option<String>,
    pub until: Option<Timestamp>,
    /// The request whose decision made it.
    pub permission_request_id: PermissionId,
    pub created_by: String,
    pub created_at: Timestamp,
    /// When the run ended that it was for.
    pub ended_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GrantList {
    pub permission_grants: Vec<PermissionGrant>,
    pub next_cursor: Option<String>,
}

/// `approvals` of an agent account: how its requests time out, and who is told of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_timeout: Option<OnTimeout>,
    /// Is told of every request of this agent that waits for a person. Shown with the values of its query as `***`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
}

// === impl PermissionGrant ===

impl PermissionGrant {
    /// When it stopped, or stops, to count by itself: with its time or with its run.
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
    /// Whether the person who decides does not see all that the tool would be given.
    pub fn hides_input(&self) -> bool {
        hides_input(&self.undisclosed)
    }

    /// What is known of a step whose input is not disclosed at all; none where it is.
    pub fn without_input(&self) -> Option<String> {
        without_input(&self.input, &self.undisclosed, self.reason.as_deref(), &self.paths)
    }
}

/// What is known of a step whose input is not disclosed at all: why, and where; none where it is disclosed.
pub fn without_input(input: &Json, undisclosed: &[String], reason: Option<&str>, paths: &[String]) -> Option<String> {
    if !undisclosed.iter().any(|what| what == "input") || !matches!(input.get(), "{}" | "null" | "\"\"") {
        return None;
    }
    let reason = reason.map(str::trim).filter(|reason| !reason.is_empty());
    let known = reason.or_else(|| paths.first().map(String::as_str));
    Some(known.map_or_else(|| "not disclosed".to_owned(), |known| format!("{known} (input not disclosed)")))
}
