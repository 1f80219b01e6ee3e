//! Where people get notifications, and what they are notified of.

use attache_protocol::{NotificationTargetId, RunId, TenantId, wire::notification::NotificationChoices};

use crate::{
    Result, WriteContext,
    record::notification::{NewNotificationTarget, NotificationTargetRecord},
    store_part::store_part,
};

/// How many targets a person may have. All keys without a user count as one person.
pub const MAX_NOTIFICATION_TARGETS: usize = 16;
/// How many targets a tenant may have.
pub const MAX_TENANT_NOTIFICATION_TARGETS: usize = 1000;

store_part! {
    /// The rules of [`crate::Store`] apply here too.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `create_notification_target` | if another one has the same address, first what its removal logs; then `notification_target.added {"notification_target_id","service","name"}` |
    /// | `update_notification_target` | `notification_target.changed {"notification_target_id"}` |
    /// | `remove_notification_target` | `notification_target.removed {"notification_target_id"}` |
    pub trait NotificationStore, layer NotificationStoreLayer, call NotificationCall {
        /// Replaces the target with the same address, whoever it belongs to. `TooManyNotificationTargets` beyond
        /// [`MAX_NOTIFICATION_TARGETS`] of its user or [`MAX_TENANT_NOTIFICATION_TARGETS`], the replaced one not counted. The
        /// user and the key aren't validated.
        async fn create_notification_target(
            &self,
            context: WriteContext,
            target: NewNotificationTarget,
        ) -> Result<NotificationTargetRecord>;

        async fn update_notification_target(
            &self,
            context: WriteContext,
            target: NotificationTargetId,
            choices: NotificationChoices,
        ) -> Result<NotificationTargetRecord>;

        async fn remove_notification_target(&self, context: WriteContext, target: NotificationTargetId) -> Result<()>;

        async fn notification_target(
            &self,
            tenant: TenantId,
            target: NotificationTargetId,
        ) -> Result<NotificationTargetRecord>;

        /// All of the tenant, in order of creation.
        async fn notification_targets(&self, tenant: TenantId) -> Result<Vec<NotificationTargetRecord>>;

        /// Makes a delivery per target ([`attache_protocol::DeliveryId::of_notification`], to the target's origin) that
        /// reports this row of the tenant's log, which is about this run. Targets and runs that don't exist, and deliveries
        /// that exist, are passed over. Returns how many were made. Not logged.
        async fn add_notifications(
            &self,
            context: WriteContext,
            run: RunId,
            seq: i64,
            targets: Vec<NotificationTargetId>,
        ) -> Result<usize>;

        /// The highest seq of the tenant's log that a kept delivery reports.
        async fn last_notified(&self, tenant: TenantId) -> Result<Option<i64>>;
    }
}
