//! The outbox of webhooks.

use async_trait::async_trait;
use attache_protocol::{DeliveryId, TenantId, Timestamp, wire::delivery::DeliveryState};

use super::{
    Memory,
    page::{self, Order},
    state::State,
};
use crate::{
    Context, Deliveries, Error, Result, Woken, entry,
    record::{
        Listed, Page,
        delivery::{Attempt, Delivery, DeliveryFilter, Next},
    },
};

// === impl State ===

impl State {
    /// Leaves a new delivery in the outbox.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        self.deliveries_made += 1;
        self.deliveries.insert(self.deliveries_made, delivery);
        self.woken.push(Woken::Deliveries);
    }

    fn due_deliveries(&self, at: Timestamp, limit: usize) -> Vec<Delivery> {
        let due = |delivery: &&Delivery| delivery.next_at.is_some_and(|next_at| next_at <= at);
        let mut due: Vec<Delivery> = self.deliveries.values().filter(due).cloned().collect();
        // It keeps the order of creation among equals.
        due.sort_by_key(|delivery| delivery.next_at);
        due.truncate(limit);
        due
    }

    fn record_attempt(&mut self, id: DeliveryId, number: i64, attempt: Attempt, next: Next) -> Result<Delivery> {
        let delivery = self.deliveries.values_mut().find(|delivery| delivery.id == id).ok_or(Error::NotFound)?;
        if delivery.state != DeliveryState::Pending || number != delivery.attempts + 1 {
            return Ok(delivery.clone());
        }
        *delivery = delivery.clone().tried(attempt.clone(), next);
        let delivery = delivery.clone();
        let row = match next {
            Next::Delivered => Some(entry::people::delivery_delivered(&delivery, &attempt)),
            Next::GiveUp => Some(entry::people::delivery_failed(&delivery, &attempt)),
            Next::RetryAt(_) => None,
        };
        if let Some(row) = row {
            self.append(delivery.tenant, attempt.at, Context::SYSTEM, row);
        }
        Ok(delivery)
    }

    fn resend_delivery(&mut self, context: &Context, id: DeliveryId) -> Result<Delivery> {
        let mut deliveries = self.deliveries.values_mut().filter(|delivery| delivery.tenant == context.tenant);
        let delivery = deliveries.find(|delivery| delivery.id == id).ok_or(Error::NotFound)?;
        delivery.state = DeliveryState::Pending;
        delivery.next_at = Some(context.at);
        let delivery = delivery.clone();
        self.append(context.tenant, context.at, &context.actor, entry::people::delivery_resent(&delivery));
        self.woken.push(Woken::Deliveries);
        Ok(delivery)
    }

    fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Delivery> {
        let mut deliveries = self.deliveries.values().filter(|delivery| delivery.tenant == tenant);
        deliveries.find(|delivery| delivery.id == id).cloned().ok_or(Error::NotFound)
    }

    fn deliveries(&self, tenant: TenantId, filter: &DeliveryFilter, page: &Page) -> Result<Listed<Delivery>> {
        let wanted = |delivery: &Delivery| {
            delivery.tenant == tenant
                && filter.state.is_none_or(|state| state == delivery.state)
                && filter.run.is_none_or(|run| run == delivery.run)
        };
        let items = self.deliveries.iter().rev().filter(|(_, delivery)| wanted(delivery));
        page::cut(items.map(|(place, delivery)| (*place, delivery.clone())), Order::Descending, page)
    }
}

// === impl Memory ===

#[async_trait]
impl Deliveries for Memory {
    async fn due_deliveries(&self, at: Timestamp, limit: usize) -> Result<Vec<Delivery>> {
        self.read(|state| Ok(state.due_deliveries(at, limit)))
    }

    async fn record_attempt(
        &self,
        delivery: DeliveryId,
        number: i64,
        attempt: Attempt,
        next: Next,
    ) -> Result<Delivery> {
        self.write(|state| state.record_attempt(delivery, number, attempt, next))
    }

    async fn resend_delivery(&self, context: Context, delivery: DeliveryId) -> Result<Delivery> {
        self.write(|state| state.resend_delivery(&context, delivery))
    }

    async fn delivery(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Delivery> {
        self.read(|state| state.delivery(tenant, delivery))
    }

    async fn deliveries(&self, tenant: TenantId, filter: DeliveryFilter, page: Page) -> Result<Listed<Delivery>> {
        self.read(|state| state.deliveries(tenant, &filter, &page))
    }
}
