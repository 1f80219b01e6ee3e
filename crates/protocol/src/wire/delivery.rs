//! Webhook deliveries and their outcomes.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DeliveryId, Json, PermissionId, RunId, Timestamp, rules::run::RunStatus};

/// The event being delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryKind {
    RunEnded,
    PermissionRequested,
    /// An A2A push notification.
    TaskUpdated,
    /// A notification on a person's device or in their chat.
    Notification,
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum DeliveryState {
        /// It will be attempted, or attempted again.
        Pending = "pending",
        /// The target acknowledged it.
        Delivered = "delivered",
        /// All attempts failed. A person can send it again.
        Failed = "failed",
    }
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
    /// The time of the next attempt.
    pub next_attempt_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    /// The target's latest HTTP status.
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

/// `GET /api/v1/deliveries/secret`: the secret that signs the caller's deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeliverySecret {
    pub secret: String,
}

/// The body sent when a call has ended.
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

/// The body sent when a person's decision is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PermissionRequestedNotice {
    /// Always `permission_requested`.
    pub event: DeliveryKind,
    pub permission_request_id: PermissionId,
    pub task_run_id: RunId,
    pub agent_name: String,
    pub tool: String,
    /// `null` if `private`.
    pub input: Option<Json>,
    /// It is a call to a private agent. Only its owner sees the input, at `decide_url`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub private: bool,
    pub cwd: Option<String>,
    pub paths: Vec<String>,
    pub reason: Option<String>,
    pub risk: Option<String>,
    /// The proposed change as a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What the agent doesn't disclose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undisclosed: Vec<String>,
    pub expires_at: Option<Timestamp>,
    /// Where a person can decide.
    pub decide_url: String,
}
