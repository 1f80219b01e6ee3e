//! Pages of a tenant's log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::log::Row;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub events: Vec<Row>,
    /// Pass it as `after` to go on.
    pub next: i64,
    /// The newest seq of the log.
    pub head: i64,
    /// The oldest rows may have been removed by retention: the chain starts after this seq …
    pub floor: i64,
    /// … with this hash.
    pub floor_hash: String,
}
