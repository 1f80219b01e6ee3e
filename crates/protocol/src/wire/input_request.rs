//! Input: what a worker asks its caller, and what the caller answers.

use crate::text_enum;
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
    /// The worker's id for this question. Asking again with the same id returns the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The response to [`CreateInputRequest`] and to `GET …/input-requests/{ask}?wait_ms=`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputAnswer {
    pub input_request_id: WorkerRequestId,
    pub state: WorkerRequestState,
    /// The caller's input, unchanged.
    pub parts: Option<Json>,
    /// The A2A message it came in, unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum WorkerRequestState {
        Pending = "pending",
        Answered = "answered",
        Expired = "expired",
        /// The answer is no longer needed: the run ended or lost its claim.
        Cancelled = "cancelled",
    }
}

/// Input from the caller: text, or parts such as `[{"text":"…"}]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GiveInputRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Json>,
    /// The question this answers, from the run's `waits_for`. Without it, the oldest open question is answered. With
    /// it, only that question is answered: if it is no longer open, the input is rejected as `not_waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_request_id: Option<WorkerRequestId>,
    /// Tells the working agent something, and answers no question, even if one is open.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsolicited: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GiveInputResponse {
    pub task_run_id: RunId,
    pub input_id: InputId,
    pub status: RunStatus,
}
