//! The outbox of webhooks.

use async_trait::async_trait;
use attache_protocol::{DeliveryId, TenantId, Timestamp};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord},
    },
};

/// The rules of [`crate::Store`] hold here too.
///
/// A delivery is made in the transaction of what it tells of: the end of a run that has a callback
/// ([`DeliveryId::of_run`]), and a permission request with `notify` that waits for a person
/// ([`DeliveryId::of_permission`]), and a change of a run that somebody subscribed to (see [`crate::Pushes`]). It is pending
/// and due at once. A hint [`crate::Woken::DeliveryStore`] follows.
///
/// | method | log rows, in the tenant's log only |
/// |---|---|
/// | `record_attempt` | `delivery.delivered {"delivery_id","task_run_id","attempt","status"}` or, when it is given up, `delivery.failed {"delivery_id","task_run_id","attempt","status","error"}`; nothing for a retry; the actor is `system`, the time is the attempt's |
/// | `resend_delivery` | `delivery.resent {"delivery_id","task_run_id"}` |
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Pending deliveries of every tenant whose time has come, by that time, then in order of creation.
    async fn due_deliveries(&self, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>>;

    /// Keeps how the attempt with this number went (the first is 1). One that is not the next of a pending delivery
    /// changes nothing: the answer shows the delivery as it is.
    async fn record_attempt(
        &self,
        delivery: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord>;

    /// A person asks for one more try, now, also of what was delivered: it is pending and due at the context's time,
    /// whatever it was. Attempts go on counting, and the last one stays as it went.
    async fn resend_delivery(&self, context: WriteContext, delivery: DeliveryId) -> Result<DeliveryRecord>;

    async fn delivery(&self, tenant: TenantId, delivery: DeliveryId) -> Result<DeliveryRecord>;

    /// Newest first.
    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: Pagination,
    ) -> Result<ListPage<DeliveryRecord>>;
}
