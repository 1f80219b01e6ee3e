//! Delegations as daemons publish them.

use async_trait::async_trait;
use attache_protocol::{DelegationId, TenantId, Timestamp};

use super::{
    MemoryStore,
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    DelegationStore, Error, Result, WriteContext, entry,
    record::{
        ListPage, Pagination,
        delegation::{DelegationFilter, DelegationRecord, DelegationUpdate},
    },
};

// === impl ModelState ===

impl ModelState {
    fn publish_delegation(&mut self, context: &WriteContext, new: DelegationUpdate) -> Result<DelegationRecord> {
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
        let delegation = new.into_record(before.as_ref(), context.tenant, context.at);
        self.delegations.insert(place, delegation.clone());
        if is_changed {
            let row = entry::delegation::changed(delegation.id, delegation.status);
            self.append(context.tenant, context.at, &context.actor, row);
        }
        Ok(delegation)
    }

    fn delegation(&self, tenant: TenantId, id: DelegationId) -> Result<DelegationRecord> {
        let mut own = self.delegations.values().filter(|known| known.tenant == tenant);
        own.find(|known| known.id == id).cloned().ok_or(Error::NotFound)
    }

    fn delegations(
        &self,
        tenant: TenantId,
        filter: &DelegationFilter,
        page: &Pagination,
    ) -> Result<ListPage<DelegationRecord>> {
        let wanted = |known: &DelegationRecord| {
            known.tenant == tenant && filter.owner.as_ref().is_none_or(|owner| *owner == known.owner)
        };
        let items = self.delegations.iter().rev().filter(|(_, known)| wanted(known));
        page::cut(items.map(|(place, known)| (*place, known.clone())), PageOrder::Descending, page)
    }

    fn cancel_delegation(&mut self, context: &WriteContext, id: DelegationId) -> Result<DelegationRecord> {
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

    /// Removes old delegations that have ended.
    pub(super) fn cut_delegations(&mut self, before: Timestamp) {
        self.delegations.retain(|_, known| !known.status.has_ended() || known.updated_at >= before);
    }
}

// === impl MemoryStore ===

#[async_trait]
impl DelegationStore for MemoryStore {
    async fn publish_delegation(
        &self,
        context: WriteContext,
        delegation: DelegationUpdate,
    ) -> Result<DelegationRecord> {
        self.write(|state| state.publish_delegation(&context, delegation))
    }

    async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<DelegationRecord> {
        self.read(|state| state.delegation(tenant, delegation))
    }

    async fn delegations(
        &self,
        tenant: TenantId,
        filter: DelegationFilter,
        page: Pagination,
    ) -> Result<ListPage<DelegationRecord>> {
        self.read(|state| state.delegations(tenant, &filter, &page))
    }

    async fn cancel_delegation(&self, context: WriteContext, delegation: DelegationId) -> Result<DelegationRecord> {
        self.write(|state| state.cancel_delegation(&context, delegation))
    }
}
