//! Input: what a worker asks of its caller, and what the caller gives.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{InputId, Json, RunId, WorkerRequestId, rules::run::RunStatus};

/// A worker asks for input. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateInputRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    pub prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Json>,
    /// The asker's own name for this question: asking again with the same one gives the same request back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The answer to [`CreateInputRequest`], and of `GET …/input-requests/{ask}?wait_ms=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputAnswer {
    pub input_request_id: WorkerRequestId,
    pub state: WorkerRequestState,
    /// What the caller gave, as it gave it.
    pub parts: Option<Json>,
    /// The A2A message that brought it, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerRequestState {
    Pending,
    Answered,
    Expired,
    /// Nobody needs the answer any more: the run ended or lost its claim.
    Cancelled,
}

/// The caller gives input: text, or parts such as `[{"text":"…"}]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveInputRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Json>,
    /// The question that this answers, as `waits_for` of the run names it. Without it, the oldest open question is
    /// answered; with it, no other ever is: one that is not open any more is refused as `not_waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_request_id: Option<WorkerRequestId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GiveInputResponse {
    pub task_run_id: RunId,
    pub input_id: InputId,
    pub status: RunStatus,
}

// === impl WorkerRequestState ===

impl WorkerRequestState {
    pub const ALL: [Self; 4] = [Self::Pending, Self::Answered, Self::Expired, Self::Cancelled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}
