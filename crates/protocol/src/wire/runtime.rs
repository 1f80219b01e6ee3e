//! Runtimes: devices paired with agent accounts, and their heartbeat.

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{
    AgentId, Json, RunId, RuntimeId, Secret, Timestamp, text_enum,
    wire::{account::Presence, adapter::WallsProof, host_session::HostSession},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeState {
    Active,
    /// Another device was paired with the same agent.
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
    /// Opaque to the hub, except that `host_type` is shown to people.
    pub labels: Json,
    pub attached_at: Timestamp,
    pub last_heartbeat_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    /// Since when its current token has been in use. Absent until the first rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_rotated_at: Option<Timestamp>,
    /// When a replaced token was last used, which means that someone else has a copy of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_reused_at: Option<Timestamp>,
    /// The extensions it declares. Shown in the agent's card.
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
    pub agent_id: Option<String>,
    /// The runs this runtime is executing. A runtime that only supports 002 omits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Vec<RunId>>,
    /// Of those, the runs that have ended on the device but whose outcome the hub has not accepted yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreported: Vec<RunId>,
    /// The A2A extensions the device supports. If absent, the previous list stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Vec<DeclaredExtension>>,
    /// The sessions that the agent's host keeps for its working folder, newest first. Kept in memory, for the agent's
    /// owner only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_sessions: Vec<HostSession>,
    /// The runtime stores and uses a new token if the response offers one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub token_rotation: bool,
}

/// Declared by a runtime whose agent asks a person before a risky step. Work passed on to an agent without it needs
/// approval in the calling run.
pub const ASKS: &str = "https://attache.dev/ext/asks/v1";

/// Declared by a runtime whose agent can be made to get its plan approved before it changes anything.
pub const PLANS: &str = "https://attache.dev/ext/plans/v1";

/// Declared by a runtime whose agent takes input that it didn't ask for while it works.
pub const TAKES_INPUT: &str = "https://attache.dev/ext/takes-input/v1";

/// Declared by a runtime whose adapter can make a git worktree for each run, because it works in a repository.
pub const WORKTREES: &str = "https://attache.dev/ext/worktrees/v1";

/// Declared by such a runtime if it carries out what the agent's owner decides about worktrees at the hub.
pub const WORKTREE_DECISIONS: &str = "https://attache.dev/ext/worktree-decisions/v1";

/// Declared by a runtime on a machine with walls, with [`DeclaredSandbox`] as parameters.
pub const SANDBOX: &str = "https://attache.dev/ext/sandbox/v1";

text_enum! {
    /// Whose runs a device puts inside its walls although their callers asked for no limits.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum WalledRuns {
        Off = "off",
        /// Everyone's but the agent's owner's.
        #[default]
        Others = "others",
        All = "all",
    }
}

/// What a device's walls are proved to enforce, and for whose runs they are used without being asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredSandbox {
    pub runs: WalledRuns,
    #[serde(flatten)]
    pub proof: WallsProof,
}

/// An A2A extension that a runtime declares for its agent's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeclaredExtension {
    pub uri: String,
    /// Its parameters in the card, kept as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    pub status: Presence,
    pub runtime_id: RuntimeId,
    pub server_time: Timestamp,
    /// Runs in the request that this runtime must stop working on.
    pub cancelled: Vec<RunId>,
    /// Decisions about worktrees wait for the device: `GET …/agent-runtimes/runtime/worktree-decisions`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree_decisions: bool,
    /// The runtime's next token. The current one stays valid until this one is first used.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "shown")]
    #[schema(value_type = Option<String>)]
    pub runtime_token: Option<Secret<String>>,
}

/// The only response, besides pairing, that contains a runtime token.
fn shown<S: Serializer>(token: &Option<Secret<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    token.as_ref().map(Secret::expose).serialize(serializer)
}

// === impl Runtime ===

impl Runtime {
    /// Whether this is an agent that was registered with a key of its own, or a device without a name, and has never
    /// connected.
    pub fn is_only_registered(&self) -> bool {
        self.device_name.is_none() && self.last_heartbeat_at.is_none() && self.ended_at.is_none()
    }
}

// === impl DeclaredExtension ===

impl DeclaredExtension {
    pub fn new(uri: impl Into<String>) -> Self {
        Self { uri: uri.into(), params: None }
    }

    /// What a runtime declares about its walls.
    pub fn sandbox(declared: &[Self]) -> Option<DeclaredSandbox> {
        declared.iter().find(|extension| extension.uri == SANDBOX)?.params.as_ref()?.parse().ok()
    }
}
