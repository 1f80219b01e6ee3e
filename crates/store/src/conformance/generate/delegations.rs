//! Steps around delegations that daemons publish.

use attache_protocol::{Actor, DelegationId, rules::delegation::DelegationStatus};

use super::StepGenerator;
use crate::{
    conformance::step::{ListToRead, StoreStep},
    record::delegation::{DelegationFilter, DelegationUpdate},
};

/// Only a few, so that they collide.
const OWNERS: [&str; 3] = ["user:ann", "agent:b'\"", "日本"];

// === impl StepGenerator ===

impl StepGenerator {
    /// A new delegation, or an update of a known one, usually by its owner.
    pub(super) fn publish_delegation(&self) -> StoreStep {
        let known = self.draw.recent(&self.known.delegations).filter(|_| self.draw.percent(65));
        let id = known.unwrap_or_else(|| DelegationId::from_uuid(self.draw.env.uuid()));
        let own = OWNERS[usize::from(id.uuid().as_bytes()[15]) % OWNERS.len()];
        let owner = if self.draw.percent(8) { self.owner() } else { own.into() };
        let status = self.draw.one_of(&DelegationStatus::ALL).unwrap_or(DelegationStatus::Created);
        let agent = self.draw.percent(50).then(|| self.agent());
        StoreStep::PublishDelegation(
            self.context(),
            DelegationUpdate { id, owner, agent, status, shown: self.draw.json() },
        )
    }

    pub(super) fn cancel_delegation(&self) -> StoreStep {
        StoreStep::CancelDelegation(self.context(), self.some_delegation())
    }

    pub(super) fn read_delegations(&self) -> StoreStep {
        if self.draw.percent(50) {
            return StoreStep::Delegation(self.tenant(), self.some_delegation());
        }
        let owner = self.draw.percent(50).then(|| self.owner());
        let list = ListToRead::Delegations(DelegationFilter { owner });
        StoreStep::List { tenant: self.tenant(), list, limit: self.limit() }
    }

    fn some_delegation(&self) -> DelegationId {
        let known = self.draw.recent(&self.known.delegations).filter(|_| self.draw.percent(90));
        known.unwrap_or_else(|| DelegationId::from_uuid(self.draw.env.uuid()))
    }

    fn owner(&self) -> Actor {
        self.draw.one_of(&OWNERS).unwrap_or_default().into()
    }
}
