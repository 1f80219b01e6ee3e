//! Delegations as daemons publish them.

use async_trait::async_trait;
use attache_protocol::{DelegationId, TenantId, Timestamp};

use super::{
    Memory,
    page::{self, Order},
    state::State,
};
use crate::{
    Context, Delegations, Error, Result, entry,
    record::{
        Listed, Page,
        delegation::{Delegation, DelegationFilter, NewDelegation},
    },
};

// === impl State ===

impl State {
    fn publish_delegation(&mut self, context: &Context, new: NewDelegation) -> Result<Delegation> {
        let known = self.delegations.iter().find(|(_, known)| known.id == new.id);
        let (place, before) = match known {
            Some((_, known)) if known.tenant != context.tenant || known.owner != new.owner => {
                return Err(Error::NotFound);
            }
            Some((place, known)) => (*place, Some(known.clone())),
            None => {
                self.tenant(context.tenant).ok_or(Error::NotFound)?;
                self.delegations_made += 1;
                (self.delegations_made, None)
            }
        };
        let is_changed = before.as_ref().is_none_or(|before| before.status != new.status);
        let cancel_requested = before.is_some_and(|before| before.cancel_requested);
        let delegation = new.made(context.tenant, cancel_requested, context.at);
        self.delegations.insert(place, delegation.clone());
        if is_changed {
            let row = entry::delegation::changed(delegation.id, delegation.status);
            self.append(context.tenant, context.at, &context.actor, row);
        }
        Ok(delegation)
    }

    fn delegation(&self, tenant: TenantId, id: DelegationId) -> Result<Delegation> {
        let mut own = self.delegations.values().filter(|known| known.tenant == tenant);
        own.find(|known| known.id == id).cloned().ok_or(Error::NotFound)
    }

    fn delegations(&self, tenant: TenantId, filter: &DelegationFilter, page: &Page) -> Result<Listed<Delegation>> {
        let wanted = |known: &Delegation| {
            known.tenant == tenant && filter.owner.as_ref().is_none_or(|owner| *owner == known.owner)
        };
        let items = self.delegations.iter().rev().filter(|(_, known)| wanted(known));
        page::cut(items.map(|(place, known)| (*place, known.clone())), Order::Descending, page)
    }

    fn cancel_delegation(&mut self, context: &Context, id: DelegationId) -> Result<Delegation> {
        let mut own = self.delegations.values_mut().filter(|known| known.tenant == context.tenant);
        let delegation = own.find(|known| known.id == id).ok_or(Error::NotFound)?;
        if delegation.status.has_ended() || delegation.cancel_requested {
            return Ok(delegation.clone());
        }
        delegation.cancel_requested = true;
        let delegation = delegation.clone();
        self.append(context.tenant, context.at, &context.actor, entry::delegation::cancel_requested(id));
        Ok(delegation)
    }

    /// Forgets those that have ended and are old.
    pub(super) fn cut_delegations(&mut self, before: Timestamp) {
        self.delegations.retain(|_, known| !known.status.has_ended() || known.updated_at >= before);
    }
}

// === impl Memory ===

#[async_trait]
impl Delegations for Memory {
    async fn publish_delegation(&self, context: Context, delegation: NewDelegation) -> Result<Delegation> {
        self.write(|state| state.publish_delegation(&context, delegation))
    }

    async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<Delegation> {
        self.read(|state| state.delegation(tenant, delegation))
    }

    async fn delegations(&self, tenant: TenantId, filter: DelegationFilter, page: Page) -> Result<Listed<Delegation>> {
        self.read(|state| state.delegations(tenant, &filter, &page))
    }

    async fn cancel_delegation(&self, context: Context, delegation: DelegationId) -> Result<Delegation> {
        self.write(|state| state.cancel_delegation(&context, delegation))
    }
}
