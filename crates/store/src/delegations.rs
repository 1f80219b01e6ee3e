//! Delegations as daemons publish them. The truth is theirs: what is kept here is for people to see.

use async_trait::async_trait;
use attache_protocol::{DelegationId, TenantId};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        delegation::{DelegationFilter, DelegationRecord, NewDelegation},
    },
};

/// The rules of [`crate::Store`] hold here too. `retain` removes those that have ended and were published last before
/// `log_before`.
///
/// | method | log rows, in the tenant's log only |
/// |---|---|
/// | `publish_delegation` | `delegation.changed {"delegation_id","status"}` when it is new or its status is another |
/// | `cancel_delegation` | `delegation.cancel_requested {"delegation_id"}` the first time, unless it has ended |
#[async_trait]
pub trait DelegationStore: Send + Sync {
    /// Makes it, or replaces what was said of it before; it keeps its place. `NotFound` if it is another owner's or another
    /// tenant's, and in a tenant that does not exist.
    async fn publish_delegation(&self, context: WriteContext, delegation: NewDelegation) -> Result<DelegationRecord>;

    async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<DelegationRecord>;

    /// Newest first.
    async fn delegations(
        &self,
        tenant: TenantId,
        filter: DelegationFilter,
        page: Pagination,
    ) -> Result<ListPage<DelegationRecord>>;

    /// Notes that somebody wants it to end. One that has ended stays as it is.
    async fn cancel_delegation(&self, context: WriteContext, delegation: DelegationId) -> Result<DelegationRecord>;
}
