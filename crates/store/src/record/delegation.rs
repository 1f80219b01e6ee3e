//! Delegations as published by daemons.

use attache_protocol::{Actor, AgentId, DelegationId, Json, TenantId, Timestamp, rules::delegation::DelegationStatus};

/// A delegation's current state, as a daemon publishes it. The first one adds the delegation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationUpdate {
    pub id: DelegationId,
    /// Its owner. No one else can change it.
    pub owner: Actor,
    /// The agent of this hub that it goes to. The first one counts.
    pub agent: Option<AgentId>,
    pub status: DelegationStatus,
    /// Everything that is shown of it, as published.
    pub shown: Json,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationRecord {
    pub id: DelegationId,
    pub tenant: TenantId,
    pub owner: Actor,
    /// The agent of this hub that it went to when it was first published.
    pub agent: Option<AgentId>,
    pub status: DelegationStatus,
    pub shown: Json,
    /// A person asked for it to end.
    pub cancel_requested: bool,
    pub updated_at: Timestamp,
}

/// Filter for listing delegations. Every given member must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationFilter {
    pub owner: Option<Actor>,
}

// === impl DelegationUpdate ===

impl DelegationUpdate {
    pub(crate) fn into_record(
        self,
        before: Option<&DelegationRecord>,
        tenant: TenantId,
        updated_at: Timestamp,
    ) -> DelegationRecord {
        let Self { id, owner, agent, status, shown } = self;
        let cancel_requested = before.is_some_and(|before| before.cancel_requested);
        let agent = before.map_or(agent, |before| before.agent);
        DelegationRecord { id, tenant, owner, agent, status, shown, cancel_requested, updated_at }
    }
}
