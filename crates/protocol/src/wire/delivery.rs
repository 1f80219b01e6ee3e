//! Deliveries: what a webhook is told, and how that went.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DeliveryId, Json, PermissionId, RunId, Timestamp, rules::run::RunStatus};

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryKind {
    RunEnded,
    PermissionRequested,
    /// An A2A push notification.
    TaskUpdated,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// It will be tried, or tried again.
    Pending,
    /// The other end acknowledged it.
    Delivered,
    /// It was tried often enough; a person can send it again.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delivery {
    pub delivery_id: DeliveryId,
    pub kind: DeliveryKind,
    pub task_run_id: RunId,
    pub permission_request_id: Option<PermissionId>,
    pub url: String,
    pub state: DeliveryState,
    pub attempts: i64,
    /// When it is tried next.
    pub next_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    /// What the other end answered last.
    pub last_status: Option<u16>,
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    pub delivered_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliveryList {
    pub deliveries: Vec<Delivery>,
    pub next_cursor: Option<String>,
}

/// `GET /api/v1/deliveries/secret`: with what the caller's own deliveries are signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliverySecret {
    pub secret: String,
}

/// The body that is posted when a call has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunEndedNotice {
    /// Always `run_ended`.
    pub event: DeliveryKind,
    pub call_id: String,
    pub task_run_id: RunId,
    pub status: RunStatus,
    pub result: Option<Json>,
    pub error: Option<String>,
    pub code: Option<String>,
    pub stats: Json,
    pub ended_at: Option<Timestamp>,
}

/// The body that is posted when a person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionRequestedNotice {
    /// Always `permission_requested`.
    pub event: DeliveryKind,
    pub permission_request_id: PermissionId,
    pub task_run_id: RunId,
    pub agent_name: String,
    pub tool: String,
    pub input: Json,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// What would change, as a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
    pub expires_at: Option<Timestamp>,
    /// Where a person decides.
    pub decide_url: String,
}

// === impl DeliveryState ===

impl DeliveryState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }
}
