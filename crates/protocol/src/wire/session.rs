//! Console sessions and login links.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    KeyId, PasskeyId, Timestamp, UserId,
    wire::key::{KeyScope, Role},
};

/// `POST /api/v1/login-links`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginLinkRequest {
    /// The name or id of the user to sign in. Default: the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A browser that is or was signed in to the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSession {
    pub session_id: KeyId,
    pub user_id: Option<UserId>,
    pub role: Role,
    /// Null: everything the role allows.
    pub scopes: Option<Vec<KeyScope>>,
    /// The key or session that created the login link, with which it ends. Null: opened with a password or passkey.
    pub opened_by: Option<KeyId>,
    /// The passkey that it was opened with, and ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passkey_id: Option<PasskeyId>,
    /// The browser's address when it signed in.
    pub address: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When it was signed out or ended.
    pub ended_at: Option<Timestamp>,
    /// Whether this is the caller's own session.
    pub current: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSessionList {
    pub sessions: Vec<ConsoleSession>,
    pub next_cursor: Option<String>,
}
