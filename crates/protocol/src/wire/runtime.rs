//! Runtimes: the devices that are paired to agent accounts, and their heartbeat.

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{AgentId, Json, RunId, RuntimeId, Secret, Timestamp, wire::account::Presence};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeState {
    Active,
    /// Another device was paired to the same agent.
    Superseded,
    Revoked,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Runtime {
    pub runtime_id: RuntimeId,
    pub agent_id: AgentId,
    pub state: RuntimeState,
    pub status: Presence,
    pub device_name: Option<String>,
    /// Opaque to the hub; `host_type` is the one people know.
    pub labels: Json,
    pub attached_at: Timestamp,
    pub last_heartbeat_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Since when its present token has been in use; absent until the first rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_rotated_at: Option<Timestamp>,
    /// When somebody last used a token that the device had already replaced: a copy of it is in other hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_reused_at: Option<Timestamp>,
    /// What it says it understands; the agent's card shows it.
    #[serde(default)]
    pub extensions: Vec<DeclaredExtension>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RuntimeList {
    pub agent_runtimes: Vec<Runtime>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<AgentId>,
    /// The runs that this runtime executes now. A runtime that only knows 002 sends none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<RunId>>,
    /// Of those, the runs that have ended on the device and whose outcome the hub has not accepted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<RunId>,
    /// The A2A extensions that the device understands. Without the list, what was said before holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<DeclaredExtension>>,
    /// The runtime stores and uses a new token when the answer offers one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_rotation: bool,
}

/// Declared by a runtime whose agent asks a person before it takes a risky step. Work that another agent passes on to one
/// that does not is asked for where it comes from.
pub const ASKS: &str = "https://attache.dev/ext/asks/v1";

/// An A2A extension that a runtime declares for its agent's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeclaredExtension {
    pub uri: String,
    /// What the card says about it, kept as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    pub status: Presence,
    pub runtime_id: RuntimeId,
    pub server_time: Timestamp,
    /// Runs named in the request that this runtime must stop working on.
    pub cancelled: Vec<RunId>,
    /// The runtime's next token. The present one stays good until this one is used for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "shown")]
    #[schema(value_type = Option<String>)]
    pub runtime_token: Option<Secret<String>>,
}

/// The one answer, besides that of pairing, that shows a runtime token.
fn shown<S: Serializer>(token: &Option<Secret<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    token.as_ref().map(Secret::expose).serialize(serializer)
}

// === impl DeclaredExtension ===

impl DeclaredExtension {
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), params: None }
    }
}
