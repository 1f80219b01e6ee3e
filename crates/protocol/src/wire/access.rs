//! The access rules of a tenant, as text.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// `GET /api/v1/permission-rules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessRules {
    /// The YAML as written.
    pub text: String,
    /// Increases with every change. Send it back with a change to avoid overwriting someone else's.
    pub version: i64,
    /// The rules file, if the hub was started with one.
    pub file: Option<String>,
    /// Why the current file content is not applied. The rules above stay active.
    pub problem: Option<String>,
    pub changed_at: Option<Timestamp>,
    pub changed_by: Option<String>,
}

/// `PUT /api/v1/permission-rules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAccessRules {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<i64>,
}

/// `POST /api/v1/permission-rules/check`: checks whether an agent may reach an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckAccess {
    /// An agent's name or id.
    pub agent: String,
    /// `agents/NAME`, `agents/NAME/memory/PATH`, `conversations/USER/ID` or `resources/SPACE/ARTIFACT`.
    pub object: String,
}

/// What the current rules decide, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessDecision {
    pub agent: String,
    pub object: String,
    pub allowed: bool,
    pub because: AccessReason,
    /// The pattern that decided, if any.
    pub rule: Option<String>,
}

/// The basis of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AccessReason)]
pub enum AccessReason {
    /// A pattern of `can_access` or `cannot_access`.
    Rule,
    /// It belongs to the agent's own user, or is an agent without an owner.
    Own,
    /// No pattern matches, so the default applies.
    Default,
    /// Nothing can have this name.
    NoSuchName,
}
