//! Console sessions, and the links that open them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    KeyId, Timestamp, UserId,
    wire::key::{KeyScope, Role},
};

/// `POST /api/v1/login-links`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginLinkRequest {
    /// The name or id of the user it signs in; the caller's own unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A browser that is, or was, signed in to the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSession {
    pub session_id: KeyId,
    pub user_id: Option<UserId>,
    pub role: Role,
    /// Null: everything that the role may do.
    pub scopes: Option<Vec<KeyScope>>,
    /// The key or session that made the login link, with which it ends; null: opened by password.
    pub opened_by: Option<KeyId>,
    /// Where the browser was when it signed in.
    pub address: Option<String>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    /// When somebody signed out or ended it.
    pub ended_at: Option<Timestamp>,
    /// Whether this is the session that asks.
    pub current: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConsoleSessionList {
    pub sessions: Vec<ConsoleSession>,
    pub next_cursor: Option<String>,
}
