//! Agent accounts.

use serde::{Deserialize, Serialize, Serializer};
use utoipa::ToSchema;

use crate::{
    AgentId, Json, Secret, Timestamp, UserId,
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
    /// Makes it an outside A2A agent, reached by its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerRequest>,
}

/// An outside A2A agent. Another URL forgets what was known of the old one, its key too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerRequest {
    /// Its card's URL, or the address below which `/.well-known/agent-card.json` is.
    pub url: String,
    /// What it is called with: sent as a bearer token, or as its card says. Never shown again; `""` takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "written")]
    #[schema(value_type = Option<String>)]
    pub key: Option<Secret<String>>,
}

/// What is known of the outside agent behind an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerView {
    pub url: String,
    /// The SHA-256 of the card that is trusted, in hex.
    pub pinned_digest: Option<String>,
    pub pinned_at: Option<Timestamp>,
    /// Another card, which is not used until its owner trusts it: `POST /api/v1/agent-accounts/{agent}/trust-card`.
    pub offered_digest: Option<String>,
    /// Why it cannot be worked with at the moment.
    pub problem: Option<String>,
    pub has_key: bool,
}

/// The body of `POST /api/v1/agent-accounts/{agent}/trust-card`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustCard {
    /// The `offered_digest` that was looked at. If another card waits by now, nothing is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
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
    /// The device that is paired now, if any.
    pub runtime: Option<Runtime>,
    /// The outside A2A agent that it stands for, if it does.
    pub peer: Option<PeerView>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountList {
    pub agent_accounts: Vec<Account>,
    pub next_cursor: Option<String>,
}

/// Only a client writes a request, to the hub that keeps the key.
#[allow(clippy::ref_option, reason = "serde calls it with a reference to the field")]
fn written<S: Serializer>(key: &Option<Secret<String>>, serializer: S) -> Result<S::Ok, S::Error> {
    key.as_ref().map(|key| key.expose()).serialize(serializer)
}
