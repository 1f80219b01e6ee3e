//! Delegations as published by daemons. The daemons own the truth; these copies are for people to see.

use attache_protocol::{DelegationId, TenantId};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        delegation::{DelegationFilter, DelegationRecord, DelegationUpdate},
    },
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] apply here too. `retain` removes ended delegations that were last published before
    /// `log_before`.
    ///
    /// | method | log rows, in the tenant's log only |
    /// |---|---|
    /// | `publish_delegation` | `delegation.changed {"delegation_id","status"}` when it is new or its status is another |
    /// | `cancel_delegation` | `delegation.cancel_requested {"delegation_id"}` the first time, unless it has ended |
    pub trait DelegationStore, layer DelegationStoreLayer, call DelegationCall {
        /// Creates a delegation, or replaces its previous state; it keeps its position. `NotFound` if it belongs to another
        /// owner or tenant, and for a nonexistent tenant.
        async fn publish_delegation(&self, context: WriteContext, delegation: DelegationUpdate) -> Result<DelegationRecord>;

        async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<DelegationRecord>;

        /// Newest first.
        async fn delegations(
            &self,
            tenant: TenantId,
            filter: DelegationFilter,
            page: Pagination,
        ) -> Result<ListPage<DelegationRecord>>;

        /// Records the request to end it. An ended delegation stays as it is.
        async fn cancel_delegation(&self, context: WriteContext, delegation: DelegationId) -> Result<DelegationRecord>;
    }
}
