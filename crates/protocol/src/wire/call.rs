//! The call API: call an agent, watch it work, read its result. A call is a run under another name.
//!
//! Unknown request members are ignored. Relayed data (`context`, `header`, `details`) is kept byte for byte.

mod frame;
mod result;
mod task;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use crate::{
    ConversationId, Json, RunId,
    id::{IdParseError, parse_uuid},
    rules::permission_mode::PermissionMode,
    wire::{
        part::Part,
        run::{CallbackEvent, Sandbox},
        usage::Budget,
    },
};

pub use frame::{CallEvent, CallMessage, CallProgress, call_event};
pub use result::{CallAnswer, CallCompletedData, CallFailedData, CallResult, CallStats, CallStatus};
pub use task::{CallInput, CallTask, CallTaskBody, CallTaskHeader, CallTaskRequest, CallTaskState};

/// The id of a run in the call API: `a2a-` and the run's uuid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(RunId);

/// `POST /api/a2a/call`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallRequest {
    pub task: String,
    /// An agent's name or id, or a skill or capability that exactly one agent has. `agent` and `agent_id` mean the same.
    #[serde(default, alias = "agent", alias = "agent_id", skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub context: Option<Json>,
    /// Called when the call has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Other events to send to the callback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_events: Option<Vec<CallbackEvent>>,
    /// The parent run, for an agent that holds or created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_run_id: Option<RunId>,
    /// The most it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Limits that the worker must enforce, or refuse the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// The id or name of an agent that gets the task if this one's model account has reached a usage limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_agent_id: Option<String>,
    /// Replaces the agent's permission mode for this call. Only callers who can change the agent's own can choose one that
    /// isn't stricter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Let the run work in its own git worktree. Only for callers who can change the agent, if its device supports it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The conversation it belongs to. Default: a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    /// Higher goes first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Files, data and links for the task, as parts of an A2A 1.0 message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Json>>)]
    pub parts: Option<Vec<Part>>,
    /// How long it may take once an agent works on it. Default: the agent's or the hub's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The response to a call. The work continues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallStarted {
    pub call_id: CallId,
    pub status: CallStatus,
    /// The WebSocket URL for watching the call.
    pub watch_url: String,
}

/// Distinguishes an explicit `null` from an absent member.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

// === impl CallId ===

impl CallId {
    pub const PREFIX: &'static str = "a2a-";

    pub const fn of(run: RunId) -> Self {
        Self(run)
    }

    pub const fn run(self) -> RunId {
        self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0.uuid().simple())
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Also accepts the run's own id.
impl FromStr for CallId {
    type Err = IdParseError;

    fn from_str(text: &str) -> Result<Self, IdParseError> {
        if text.starts_with(RunId::PREFIX) {
            return text.parse().map(Self);
        }
        parse_uuid(text, Self::PREFIX).map(|uuid| Self(RunId::from_uuid(uuid)))
    }
}

impl Serialize for CallId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CallId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl utoipa::PartialSchema for CallId {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .pattern(Some("^a2a-[0-9a-f]{32}$"))
            .into()
    }
}

impl ToSchema for CallId {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_after_its_run() {
        let run: RunId = "run_0191e9a0000070008000000000000007".parse().unwrap();
        let call = CallId::of(run);
        assert_eq!(call.to_string(), "a2a-0191e9a0000070008000000000000007");
        for text in [
            "a2a-0191e9a0000070008000000000000007",
            "a2a-0191e9a0-0000-7000-8000-000000000007",
            "run_0191e9a0000070008000000000000007",
        ] {
            assert_eq!(text.parse::<CallId>(), Ok(call), "{text}");
        }
        for text in ["", "a2a-", "a2a-x", "0191e9a0000070008000000000000007", "agt_0191e9a0000070008000000000000007"] {
            assert!(text.parse::<CallId>().is_err(), "{text}");
        }
    }
}
