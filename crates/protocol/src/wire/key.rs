//! API keys and roles.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{KeyId, Timestamp, UserId};

/// What a person's credential may do; the table is in DESIGN §9 and `hub::identity`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Viewer,
    Operator,
    Admin,
    Owner,
}

impl Role {
    pub const ALL: [Self; 4] = [Self::Viewer, Self::Operator, Self::Admin, Self::Owner];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }
}

/// A part of what a role may do, for a key that should do less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyScope {
    /// See agents, runs, channels, conversations, artifacts, deliveries and usage.
    Read,
    /// Put agents to work, and cancel that; read the secret that deliveries are signed with.
    Call,
    /// Answer permission requests.
    Decide,
    /// Agents, pairing and runtimes.
    Manage,
    /// Users, keys, quotas, rules and the audit log; send a delivery again.
    Admin,
}

impl KeyScope {
    pub const ALL: [Self; 5] = [Self::Read, Self::Call, Self::Decide, Self::Manage, Self::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Call => "call",
            Self::Decide => "decide",
            Self::Manage => "manage",
            Self::Admin => "admin",
        }
    }

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKeyRequest {
    pub name: String,
    /// `operator` unless told; never more than the user has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The name or id of the user it acts for; the caller's own unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Everything that the role may do, unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<KeyScope>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// A client's certificate (PEM) that is the key's credential, instead of a secret. The hub must ask for certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub key_id: KeyId,
    pub name: String,
    pub role: Role,
    /// Whom it acts for; null for a key that belongs to nobody in particular.
    pub user_id: Option<UserId>,
    /// Null: everything that the role may do.
    pub scopes: Option<Vec<KeyScope>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// The one answer that shows an API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// Absent for a key whose credential is a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    pub key: Key,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    pub api_keys: Vec<Key>,
    pub next_cursor: Option<String>,
}
