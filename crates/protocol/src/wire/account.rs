//! Agent accounts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AgentId, Json, Timestamp, UserId,
    wire::{permission::ApprovalPolicy, runtime::Runtime},
};

/// What an agent says it can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Skill {
    pub id: String,
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Who may put an agent to work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Callers {
    /// Everybody whose role, or whose access rules, let them call agents.
    #[default]
    Everyone,
    /// The person it belongs to, with that person's own agents. Nobody else changes the agent or gives it away.
    Owner,
}

/// The body of `POST` and, with every member optional, `PATCH /api/v1/agent-accounts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<Skill>>,
    /// Switches of the A2A surface, kept as given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<Json>,
    /// How its permission requests time out and who is told of them; `{}` goes back to the hub's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<ApprovalPolicy>,
    /// The user it belongs to, by name or id, or `""` for nobody in particular; only an admin says this. Whoever makes an
    /// agent owns it otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who may put it to work; only its owner opens an agent that is theirs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<Callers>,
    /// How long its runs may take when their caller does not say; 0 goes back to the hub's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// Makes the account stand for an A2A agent outside, which is then called instead of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerRequest>,
}

/// An A2A agent outside.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerRequest {
    /// Its origin, its base or its card. Not with a query: secrets belong into `key`.
    pub url: String,
    /// What it wants to see from callers; `""` forgets it. It is never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `sha256:…` of the card that is expected there; another one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_pin: Option<String>,
}

/// The A2A agent outside that an account stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    pub url: String,
    pub has_key: bool,
    /// Of the card that is trusted.
    pub card_pin: Option<String>,
    pub pinned_at: Option<Timestamp>,
    /// Of a card that waits to be trusted (`POST …/trust`); nothing new is sent until then.
    pub offered_pin: Option<String>,
    /// How it is spoken to, by its trusted card: `JSONRPC`, `HTTP+JSON` or `GRPC`, and the version of A2A.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Why it cannot be worked with at the moment.
    pub problem: Option<String>,
}

/// The body of `POST /api/v1/agent-accounts/{agent}/trust`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustRequest {
    /// `sha256:…` of the card that was looked at: a still newer one is then not trusted by accident.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_pin: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    Online,
    Offline,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Account {
    pub agent_id: AgentId,
    pub name: String,
    pub status: Presence,
    pub description: Option<String>,
    pub instructions: Option<String>,
    pub skills: Vec<Skill>,
    pub a2a: Option<Json>,
    pub approvals: Option<ApprovalPolicy>,
    /// The person it belongs to; null for an agent of the organisation.
    pub owner_id: Option<UserId>,
    #[serde(default)]
    pub callers: Callers,
    /// How long its runs may take when their caller does not say; null: as the hub says.
    #[serde(default)]
    pub run_timeout_ms: Option<u64>,
    /// The device that is paired now, if any.
    pub runtime: Option<Runtime>,
    /// Only of an account that stands for an A2A agent outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerInfo>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountList {
    pub agent_accounts: Vec<Account>,
    pub next_cursor: Option<String>,
}

// === impl Callers ===

impl Callers {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Everyone => "everyone",
            Self::Owner => "owner",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        [Self::Everyone, Self::Owner].into_iter().find(|callers| callers.as_str() == text)
    }
}

// === impl PeerRequest ===

impl std::fmt::Debug for PeerRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.key.as_ref().map(|_| "***");
        f.debug_struct("PeerRequest")
            .field("url", &self.url)
            .field("key", &key)
            .field("card_pin", &self.card_pin)
            .finish()
    }
}
