//! API keys and roles.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{KeyId, Timestamp, UserId};

text_enum! {
    /// A person's role. The access table is in `hub::identity`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
    pub enum Role {
        Viewer = "viewer",
        Operator = "operator",
        Admin = "admin",
        Owner = "owner",
    }
}

text_enum! {
    /// A subset of a role's rights, for a restricted key.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
    pub enum KeyScope {
        /// Read agents, runs, channels, conversations, artifacts, deliveries and usage.
        Read = "read",
        /// Create and cancel runs, and read the secret that signs deliveries.
        Call = "call",
        /// Decide permission requests.
        Decide = "decide",
        /// Manage agents, pairing and runtimes.
        Manage = "manage",
        /// Manage users, keys, quotas, rules and the audit log, and resend deliveries.
        Admin = "admin",
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKeyRequest {
    pub name: String,
    /// Default: `operator`. Never above the user's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The name or id of its user. Default: the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Default: everything the role allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<KeyScope>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// A client certificate (PEM) that is the key's credential instead of a secret. The hub must request certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    pub key_id: KeyId,
    pub name: String,
    pub role: Role,
    /// Its user. Null for a key without a user.
    pub user_id: Option<UserId>,
    /// Null: everything the role allows.
    pub scopes: Option<Vec<KeyScope>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// The only response that contains the API key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// Absent if the credential is a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    pub key: Key,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyList {
    pub api_keys: Vec<Key>,
    pub next_cursor: Option<String>,
}
