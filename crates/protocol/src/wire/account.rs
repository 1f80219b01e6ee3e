//! Agent accounts.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    AgentId, Json, Timestamp, UserId,
    wire::{permission::ApprovalPolicy, runtime::Runtime},
};

/// A skill the agent offers.
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

text_enum! {
    /// Who may put an agent to work.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum Callers {
        /// Anyone whose role or access rules allow calling agents.
        #[default]
        Everyone = "everyone",
        /// Only its owner and the owner's own agents. No one else can change or transfer the agent.
        Owner = "owner",
    }
}

text_enum! {
    /// What becomes of a run when the model account of its agent reaches a usage limit.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum OnLimit {
        /// It waits, and goes back to the queue when the limit resets.
        Wait = "wait",
        /// It ends, and the agent that its caller named as a fallback gets the task. Without one, it fails.
        #[default]
        Fallback = "fallback",
        /// It fails.
        Fail = "fail",
    }
}

text_enum! {
    /// What an approval of an agent's requests needs, beside a person who may decide.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum ApprovalConfirmation {
        #[default]
        None = "none",
        /// Their passkey, for every approval. So only people approve, and only in the console.
        Passkey = "passkey",
    }
}

text_enum! {
    /// What others had added to an agent.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum AddedPart {
        /// A device or program that someone else paired or registered.
        Runtime = "runtime",
        /// A key of an outside agent that was created with someone else's credential.
        Key = "key",
        /// The outside agent that someone else made it stand for.
        Peer = "peer",
        /// `approvals.webhook_url`, whoever set it.
        ApprovalWebhook = "approval_webhook",
        /// Standing approvals by others, or without a passkey.
        Grants = "grants",
    }
}

/// The body of `POST` and, with all members optional, `PATCH /api/v1/agent-accounts`.
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
    /// A2A options, kept as sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a2a: Option<Json>,
    /// How its permission requests time out and who is notified. `{}` restores the hub's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<ApprovalPolicy>,
    /// The owner, by name or id, or `""` for none. Only admins can set this. By default, the creator is the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who may put it to work. Only its owner can share a private agent. `owner` ends what others added to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<Callers>,
    /// The default time limit of its runs. 0 restores the hub's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_timeout_ms: Option<u64>,
    /// What its runs do at a usage limit of its model account. Default: `fallback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_limit: Option<OnLimit>,
    /// What an approval of its requests needs. Only its owner can change this, in person. With `passkey`, standing approvals
    /// end, and nothing is approved in advance. Default: `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_approvals: Option<ApprovalConfirmation>,
    /// Makes the account represent an outside A2A agent, which is called instead of a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerRequest>,
}

/// An outside A2A agent.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PeerRequest {
    /// Its origin, base URL or card URL, without a query. Put secrets into `key`.
    pub url: String,
    /// The key to send to the agent. `""` removes it. Never shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The expected `sha256:…` pin of its card. Any other card is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_pin: Option<String>,
}

/// The outside A2A agent that an account represents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PeerInfo {
    pub url: String,
    pub has_key: bool,
    /// The pin of the trusted card.
    pub card_pin: Option<String>,
    pub pinned_at: Option<Timestamp>,
    /// The pin of a card waiting to be trusted (`POST …/trust`). No new work is sent until then.
    pub offered_pin: Option<String>,
    /// The binding of its trusted card: `JSONRPC`, `HTTP+JSON` or `GRPC`, and the A2A version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Why it can't be used at the moment.
    pub problem: Option<String>,
}

/// The body of `POST /api/v1/agent-accounts/{agent}/trust`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustRequest {
    /// The `sha256:…` pin of the card you checked, so that a newer one is not trusted by accident.
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
    /// Its owner. Null for an agent of the organisation.
    pub owner_id: Option<UserId>,
    /// Whether its owner wrote `instructions` and what `approvals` approve in advance, or there is neither. Otherwise the
    /// owner's runs are inside the walls of their device, too, until they send both again.
    #[serde(default)]
    pub settings_by_owner: bool,
    #[serde(default)]
    pub callers: Callers,
    /// The default time limit of its runs. Null: the hub's default.
    #[serde(default)]
    pub run_timeout_ms: Option<u64>,
    /// What its runs do at a usage limit of its model account.
    #[serde(default)]
    pub on_limit: OnLimit,
    /// What an approval of its requests needs.
    #[serde(default)]
    pub confirm_approvals: ApprovalConfirmation,
    /// The currently paired device, if any.
    pub runtime: Option<Runtime>,
    /// Only for an account that represents an outside A2A agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PeerInfo>,
    pub created_at: Timestamp,
    pub archived_at: Option<Timestamp>,
    /// What this change ended, because the agent is now private or its approvals need a passkey. Only in the response to that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<AddedPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccountList {
    pub agent_accounts: Vec<Account>,
    pub next_cursor: Option<String>,
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
