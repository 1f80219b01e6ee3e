//! The access rules of a tenant, as text.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Timestamp;

/// `GET /api/v1/permission-rules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessRules {
    /// The YAML as a person wrote it.
    pub text: String,
    /// Grows with every change; send it back with a change, so that nobody overwrites what they have not seen.
    pub version: i64,
    /// The file that holds them, if the hub was started with one.
    pub file: Option<String>,
    /// Why the file as it is now is not in force; the rules above still are.
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

/// `POST /api/v1/permission-rules/check`: may this agent reach that?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckAccess {
    /// An agent's name or id.
    pub agent: String,
    /// `agents/NAME`, `agents/NAME/memory/PATH`, `conversations/USER/ID` or `resources/SPACE/ARTIFACT`.
    pub object: String,
}

/// What the rules in force say, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessDecision {
    pub agent: String,
    pub object: String,
    pub allowed: bool,
    pub because: AccessReason,
    /// The pattern that decided, where one did.
    pub rule: Option<String>,
}

/// What a decision rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AccessReason)]
pub enum AccessReason {
    /// A pattern of `can_access` or `cannot_access`.
    Rule,
    /// It belongs to the agent's own user, or is an agent that belongs to nobody.
    Own,
    /// No pattern speaks about it, so the default holds.
    Default,
    /// Nothing can have such a name.
    NoSuchName,
}
