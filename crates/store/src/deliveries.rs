//! The outbox of webhooks.

use attache_protocol::{DeliveryId, NodeId, TenantId, Timestamp};

use crate::{
    Result, WriteContext,
    record::{
        ListPage, Pagination,
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord},
    },
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] apply here too.
    ///
    /// A delivery is made in the transaction of what it tells of: the end of a run that has a callback
    /// ([`DeliveryId::of_run`]), and a permission request with `notify` that waits for a person
    /// ([`DeliveryId::of_permission`]), and a change of a run that somebody subscribed to (see [`crate::PushStore`]). It is pending
    /// and due at once. A hint [`crate::WakeHint::Deliveries`] follows.
    ///
    /// | method | log rows, in the tenant's log only |
    /// |---|---|
    /// | `record_attempt` | `delivery.delivered {"delivery_id","task_run_id","attempt","status"}` or, when it is given up, `delivery.failed {"delivery_id","task_run_id","attempt","status","error"}`; nothing for a retry; the actor is `system`, the time is the attempt's |
    /// | `resend_delivery` | `delivery.resent {"delivery_id","task_run_id"}` |
    pub trait DeliveryStore, layer DeliveryStoreLayer, call DeliveryCall {
        /// Pending deliveries of every tenant whose time has come, by that time, then in order of creation. With a node,
        /// without those that are leased to another one (see [`crate::NodeStore`]).
        async fn due_deliveries(&self, node: Option<NodeId>, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>>;

        /// Records the result of the attempt with this number (starting at 1). If it isn't the next attempt of a pending
        /// delivery, nothing changes and the current delivery is returned.
        async fn record_attempt(
            &self,
            delivery: DeliveryId,
            number: i64,
            attempt: DeliveryAttempt,
            next: AttemptDecision,
        ) -> Result<DeliveryRecord>;

        /// Schedules one more attempt now, on a person's request, even for a delivered one: it becomes pending and due at
        /// the context's time. The attempt count continues, and the last attempt keeps its result.
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
}
