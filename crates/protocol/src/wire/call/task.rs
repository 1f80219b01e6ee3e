//! The header/task form of a call, and its lossless conversion to and from a run's input.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{CallAnswer, CallId, CallRequest, CallResult, CallStats, CallStatus, given};
use crate::{
    Json, Timestamp,
    wire::{
        run::{CallbackEvent, Run, Sandbox},
        usage::Budget,
    },
};

/// `POST /api/a2a/v1/tasks`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallTaskRequest {
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub header: Option<Json>,
    pub task: CallTaskBody,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Json>,
    /// Called when the task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Other events to send to the callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_events: Option<Vec<CallbackEvent>>,
    /// The most it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Limits that the worker must enforce, or refuse the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallTaskBody {
    pub description: String,
    /// The agent must have all of them, each as a skill or capability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities_required: Option<Vec<String>>,
}

/// The header of a task that was sent without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTaskHeader {
    pub message_id: String,
    pub timestamp: Timestamp,
}

/// The response to `POST /api/a2a/v1/tasks`, and `GET /api/a2a/v1/tasks/{id}`: the request and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallTask {
    pub header: Json,
    pub task: CallTaskState,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<CallAnswer>,
    /// For a task that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<CallStats>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallTaskState {
    pub id: CallId,
    pub status: CallStatus,
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities_required: Option<Vec<String>>,
}

/// The input of a run created by a call: `{"text","context"}`, and the other members of the header/task form.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallInput {
    pub text: String,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub header: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities_required: Option<Vec<String>>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Json>,
    /// The task as an A2A message, if it has more than text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Json>,
}

// === impl CallInput ===

impl From<CallRequest> for CallInput {
    fn from(request: CallRequest) -> Self {
        Self { text: request.task, context: request.context, ..Self::default() }
    }
}

impl From<CallTaskRequest> for CallInput {
    fn from(request: CallTaskRequest) -> Self {
        Self {
            text: request.task.description,
            context: request.context,
            header: request.header,
            capabilities_required: request.task.capabilities_required,
            capabilities: request.capabilities,
            message: None,
        }
    }
}

impl From<CallInput> for CallRequest {
    fn from(input: CallInput) -> Self {
        Self { task: input.text, context: input.context, ..Self::default() }
    }
}

impl From<CallInput> for CallTaskRequest {
    fn from(input: CallInput) -> Self {
        Self {
            header: input.header,
            task: CallTaskBody { description: input.text, capabilities_required: input.capabilities_required },
            context: input.context,
            capabilities: input.capabilities,
            ..Self::default()
        }
    }
}

// === impl CallTask ===

impl CallTask {
    /// The run in the header/task form. A run created another way shows its input.
    pub fn of(run: &Run, now: Timestamp) -> Self {
        let input = run.input.parse::<CallInput>().unwrap_or_else(|_| CallInput {
            text: run.input.text_member("text").unwrap_or_default(),
            ..CallInput::default()
        });
        let result = CallResult::of(run, now);
        let id = CallId::of(run.task_run_id);
        let made = || Json::of(&CallTaskHeader { message_id: id.to_string(), timestamp: run.created_at });
        Self {
            header: input.header.filter(Json::is_object).unwrap_or_else(made),
            task: CallTaskState {
                id,
                status: result.status,
                description: input.text,
                capabilities_required: input.capabilities_required,
            },
            context: input.context,
            capabilities: input.capabilities,
            result: result.result,
            stats: run.ended_at.is_some().then_some(result.stats),
            error: result.error,
            code: result.code,
        }
    }
}
