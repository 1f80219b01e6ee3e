//! Users: the people of a tenant.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Secret, Timestamp, UserId, wire::key::Role};

/// `POST /api/v1/users`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateUserRequest {
    /// The sign-in name, also used in access rules: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Default: `operator`.
    #[serde(default)]
    pub role: Option<Role>,
    /// Without a password, the user signs in with login links only.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret<String>>,
}

/// `PATCH /api/v1/users/{user}`. Absent members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateUserRequest {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub role: Option<Role>,
    /// Ends all of the user's sessions.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret<String>>,
    /// Required when people change their own password.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub current_password: Option<Secret<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct User {
    pub user_id: UserId,
    pub name: String,
    pub role: Role,
    pub has_password: bool,
    pub created_at: Timestamp,
    pub removed_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UserList {
    pub users: Vec<User>,
    pub next_cursor: Option<String>,
}
