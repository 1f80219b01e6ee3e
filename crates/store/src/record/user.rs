//! Users, and the access rules of agents.

use attache_protocol::{Actor, Secret, TenantId, Timestamp, UserId, wire::key::Role};

/// How a user is referred to: by id or by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UserRef {
    Id(UserId),
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewUser {
    pub id: UserId,
    pub name: String,
    pub role: Role,
    /// A hash in the PHC format, with its salt and its parameters.
    pub password: Option<Secret<String>>,
}

/// Changes to a user. `None` leaves a member as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPatch {
    pub name: Option<String>,
    pub role: Option<Role>,
    pub password: Option<Secret<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserRecord {
    pub id: UserId,
    pub tenant: TenantId,
    pub name: String,
    pub role: Role,
    pub password: Option<Secret<String>>,
    pub created_at: Timestamp,
    pub removed_at: Option<Timestamp>,
}

/// A view of the list of runs that a person keeps: how they named it, and what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedView {
    pub name: String,
    /// As in the address of the list. The store doesn't read it.
    pub query: String,
}

/// The current access rules, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRulesRecord {
    pub text: String,
    /// Increases by one with every change, starting at 1.
    pub version: i64,
    pub changed_at: Timestamp,
    pub changed_by: Actor,
}
