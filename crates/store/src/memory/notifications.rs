//! Notification targets, and the deliveries to them.

use async_trait::async_trait;
use attache_protocol::{NotificationTargetId, RunId, TenantId, wire::notification::NotificationChoices};

use super::{MemoryStore, state::ModelState};
use crate::{
    Error, MAX_NOTIFICATION_TARGETS, MAX_TENANT_NOTIFICATION_TARGETS, NotificationStore, Result, WriteContext, entry,
    record::{
        delivery::DeliveryRecord,
        notification::{NewNotificationTarget, NotificationTargetRecord},
    },
};

// === impl ModelState ===

impl ModelState {
    fn create_notification_target(
        &mut self,
        context: &WriteContext,
        new: NewNotificationTarget,
    ) -> Result<NotificationTargetRecord> {
        self.known_tenant(context.tenant)?;
        let own = self.notification_targets(context.tenant);
        let replaced = own.iter().find(|known| known.address == new.address).map(|known| known.id);
        let others = || own.iter().filter(|known| Some(known.id) != replaced);
        if others().count() >= MAX_TENANT_NOTIFICATION_TARGETS
            || others().filter(|known| known.user == new.user).count() >= MAX_NOTIFICATION_TARGETS
        {
            return Err(Error::TooManyNotificationTargets);
        }
        if let Some(replaced) = replaced {
            self.remove_notification_target(context, replaced)?;
        }
        let target = new.into_record(context.tenant, context.at);
        self.append(context.tenant, context.at, &context.actor, entry::notification::added(&target));
        self.notification_targets.push(target.clone());
        Ok(target)
    }

    fn update_notification_target(
        &mut self,
        context: &WriteContext,
        id: NotificationTargetId,
        choices: NotificationChoices,
    ) -> Result<NotificationTargetRecord> {
        let mut own = self.notification_targets.iter_mut().filter(|known| known.tenant == context.tenant);
        let target = own.find(|known| known.id == id).ok_or(Error::NotFound)?;
        target.choices = choices;
        let target = target.clone();
        self.append(context.tenant, context.at, &context.actor, entry::notification::changed(id));
        Ok(target)
    }

    fn remove_notification_target(&mut self, context: &WriteContext, id: NotificationTargetId) -> Result<()> {
        self.notification_target(context.tenant, id)?;
        self.notification_targets.retain(|known| known.id != id);
        self.append(context.tenant, context.at, &context.actor, entry::notification::removed(id));
        Ok(())
    }

    fn notification_target(&self, tenant: TenantId, id: NotificationTargetId) -> Result<NotificationTargetRecord> {
        let mut own = self.notification_targets(tenant).into_iter();
        own.find(|known| known.id == id).ok_or(Error::NotFound)
    }

    fn notification_targets(&self, tenant: TenantId) -> Vec<NotificationTargetRecord> {
        self.notification_targets.iter().filter(|known| known.tenant == tenant).cloned().collect()
    }

    fn add_notifications(
        &mut self,
        context: &WriteContext,
        run: RunId,
        seq: i64,
        targets: &[NotificationTargetId],
    ) -> usize {
        if self.place(context.tenant, run).is_err() {
            return 0;
        }
        let mut made = 0;
        for target in targets {
            let Ok(target) = self.notification_target(context.tenant, *target) else { continue };
            let delivery = DeliveryRecord::notification(run, &target, seq, context.at);
            if self.deliveries.values().all(|known| known.id != delivery.id) {
                self.deliver(delivery);
                made += 1;
            }
        }
        made
    }

    fn last_notified(&self, tenant: TenantId) -> Option<i64> {
        let told = self.deliveries.values().filter(|known| known.tenant == tenant && known.target.is_some());
        told.filter_map(|known| known.seq).max()
    }
}

// === impl MemoryStore ===

#[async_trait]
impl NotificationStore for MemoryStore {
    async fn create_notification_target(
        &self,
        context: WriteContext,
        target: NewNotificationTarget,
    ) -> Result<NotificationTargetRecord> {
        self.write(|state| state.create_notification_target(&context, target))
    }

    async fn update_notification_target(
        &self,
        context: WriteContext,
        target: NotificationTargetId,
        choices: NotificationChoices,
    ) -> Result<NotificationTargetRecord> {
        self.write(|state| state.update_notification_target(&context, target, choices))
    }

    async fn remove_notification_target(&self, context: WriteContext, target: NotificationTargetId) -> Result<()> {
        self.write(|state| state.remove_notification_target(&context, target))
    }

    async fn notification_target(
        &self,
        tenant: TenantId,
        target: NotificationTargetId,
    ) -> Result<NotificationTargetRecord> {
        self.read(|state| state.notification_target(tenant, target))
    }

    async fn notification_targets(&self, tenant: TenantId) -> Result<Vec<NotificationTargetRecord>> {
        self.read(|state| Ok(state.notification_targets(tenant)))
    }

    async fn add_notifications(
        &self,
        context: WriteContext,
        run: RunId,
        seq: i64,
        targets: Vec<NotificationTargetId>,
    ) -> Result<usize> {
        self.write(|state| Ok(state.add_notifications(&context, run, seq, &targets)))
    }

    async fn last_notified(&self, tenant: TenantId) -> Result<Option<i64>> {
        self.read(|state| Ok(state.last_notified(tenant)))
    }
}
