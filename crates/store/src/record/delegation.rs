//! What daemons tell the hub of the folders that they lend.

use attache_protocol::{DelegationId, Json, TenantId, Timestamp, rules::delegation::DelegationStatus};

/// What a daemon says of a delegation now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelegation {
    pub id: DelegationId,
    /// Whose it is; nobody else changes it.
    pub owner: String,
    pub status: DelegationStatus,
    /// All that is shown of it, as the daemon said it.
    pub shown: Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationRecord {
    pub id: DelegationId,
    pub tenant: TenantId,
    pub owner: String,
    pub status: DelegationStatus,
    pub shown: Json,
    /// A person wants it to end.
    pub cancel_requested: bool,
    pub updated_at: Timestamp,
}

/// Which delegations to list; every member that is given must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationFilter {
    pub owner: Option<String>,
}

// === impl NewDelegation ===

impl NewDelegation {
    pub(crate) fn from_new(self, tenant: TenantId, cancel_requested: bool, updated_at: Timestamp) -> DelegationRecord {
        let Self { id, owner, status, shown } = self;
        DelegationRecord { id, tenant, owner, status, shown, cancel_requested, updated_at }
    }
}
