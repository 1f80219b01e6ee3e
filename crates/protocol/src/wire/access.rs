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
