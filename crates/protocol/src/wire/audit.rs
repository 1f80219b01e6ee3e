//! Pages of a tenant's log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{TenantId, Timestamp, log::LogRow, wire::token::PublicKey};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditPage {
    pub events: Vec<LogRow>,
    /// Pass it as `after` to continue.
    pub next: i64,
    /// The newest seq in the log.
    pub head: i64,
    /// Retention may have removed the oldest rows: the chain starts after this seq …
    pub floor: i64,
    /// … with this hash. The newest `log.removed` row has the same.
    pub floor_hash: String,
    /// How long rows are kept. Newer ones are never removed.
    #[serde(default)]
    pub kept_for_ms: Option<i64>,
    /// The head of the log, signed by the hub. Keep it to prove later what the log contained.
    #[serde(default)]
    pub checkpoint: Option<Checkpoint>,
}

/// The hub's signed statement that its log has this row with this hash. The hash covers all rows before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    #[schema(value_type = String)]
    pub tenant_id: TenantId,
    pub seq: i64,
    /// Hex of the chain's hash up to and including this row.
    pub hash: String,
    /// When it was signed.
    pub at: Timestamp,
    /// The key that signed it, which the hub also publishes at `/.well-known/jwks.json`.
    pub key: PublicKey,
    /// ES256 over [`Checkpoint::message`], in base64url without padding.
    pub signature: String,
}

// === impl Checkpoint ===

impl Checkpoint {
    /// The signed text.
    pub fn message(&self) -> String {
        let Self { tenant_id, seq, hash, at, .. } = self;
        format!("attache audit checkpoint 1\n{tenant_id}\n{seq}\n{hash}\n{}\n", at.millis())
    }
}
