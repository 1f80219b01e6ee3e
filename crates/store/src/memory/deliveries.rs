//! The outbox of webhooks.

use async_trait::async_trait;
use attache_protocol::{DeliveryId, NodeId, TenantId, Timestamp, wire::delivery::DeliveryState};

use super::{
    MemoryStore,
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    DeliveryStore, Error, Result, WakeHint, WriteContext, entry,
    record::{
        ListPage, Pagination,
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord},
    },
};

// === impl ModelState ===

impl ModelState {
    /// Adds a new delivery to the outbox.
    pub(super) fn deliver(&mut self, delivery: DeliveryRecord) {
        self.deliveries_made += 1;
        self.deliveries.insert(self.deliveries_made, delivery);
        self.woken.push(WakeHint::Deliveries);
    }

    fn due_deliveries(&self, node: Option<NodeId>, at: Timestamp, limit: usize) -> Vec<DeliveryRecord> {
        let due = |delivery: &&DeliveryRecord| {
            let is_anothers = |node| self.delivery_leases.get(&delivery.id).is_some_and(|holder| *holder != node);
            delivery.next_at.is_some_and(|next_at| next_at <= at) && !node.is_some_and(is_anothers)
        };
        let mut due: Vec<DeliveryRecord> = self.deliveries.values().filter(due).cloned().collect();
        // A stable sort keeps the order of creation among equals.
        due.sort_by_key(|delivery| delivery.next_at);
        due.truncate(limit);
        due
    }

    fn record_attempt(
        &mut self,
        id: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord> {
        let delivery = self.deliveries.values_mut().find(|delivery| delivery.id == id).ok_or(Error::NotFound)?;
        if delivery.state != DeliveryState::Pending || number != delivery.attempts + 1 {
            return Ok(delivery.clone());
        }
        self.delivery_leases.remove(&id);
        *delivery = delivery.clone().tried(attempt.clone(), next);
        let delivery = delivery.clone();
        let row = match next {
            AttemptDecision::Delivered => Some(entry::user::delivery_delivered(&delivery, &attempt)),
            AttemptDecision::GiveUp => Some(entry::user::delivery_failed(&delivery, &attempt)),
            AttemptDecision::RetryAt(_) => None,
        };
        if let Some(row) = row {
            self.append(delivery.tenant, attempt.at, WriteContext::SYSTEM, row);
        }
        Ok(delivery)
    }

    fn resend_delivery(&mut self, context: &WriteContext, id: DeliveryId) -> Result<DeliveryRecord> {
        let mut deliveries = self.deliveries.values_mut().filter(|delivery| delivery.tenant == context.tenant);
        let delivery = deliveries.find(|delivery| delivery.id == id).ok_or(Error::NotFound)?;
        delivery.state = DeliveryState::Pending;
        delivery.next_at = Some(context.at);
        let delivery = delivery.clone();
        self.append(context.tenant, context.at, &context.actor, entry::user::delivery_resent(&delivery));
        self.woken.push(WakeHint::Deliveries);
        Ok(delivery)
    }

    fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<DeliveryRecord> {
        let mut deliveries = self.deliveries.values().filter(|delivery| delivery.tenant == tenant);
        deliveries.find(|delivery| delivery.id == id).cloned().ok_or(Error::NotFound)
    }

    fn deliveries(
        &self,
        tenant: TenantId,
        filter: &DeliveryFilter,
        page: &Pagination,
    ) -> Result<ListPage<DeliveryRecord>> {
        let wanted = |delivery: &DeliveryRecord| {
            delivery.tenant == tenant
                && filter.state.is_none_or(|state| state == delivery.state)
                && filter.run.is_none_or(|run| run == delivery.run)
        };
        let items = self.deliveries.iter().rev().filter(|(_, delivery)| wanted(delivery));
        page::cut(items.map(|(place, delivery)| (*place, delivery.clone())), PageOrder::Descending, page)
    }
}

// === impl MemoryStore ===

#[async_trait]
impl DeliveryStore for MemoryStore {
    async fn due_deliveries(&self, node: Option<NodeId>, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>> {
        self.read(|state| Ok(state.due_deliveries(node, at, limit)))
    }

    async fn record_attempt(
        &self,
        delivery: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord> {
        self.write(|state| state.record_attempt(delivery, number, attempt, next))
    }

    async fn resend_delivery(&self, context: WriteContext, delivery: DeliveryId) -> Result<DeliveryRecord> {
        self.write(|state| state.resend_delivery(&context, delivery))
    }

    async fn delivery(&self, tenant: TenantId, delivery: DeliveryId) -> Result<DeliveryRecord> {
        self.read(|state| state.delivery(tenant, delivery))
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: Pagination,
    ) -> Result<ListPage<DeliveryRecord>> {
        self.read(|state| state.deliveries(tenant, &filter, &page))
    }
}
