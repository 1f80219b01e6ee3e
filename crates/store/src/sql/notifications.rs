//! Notification targets, and the deliveries to them.

use async_trait::async_trait;
use attache_protocol::{
    Json, NotificationTargetId, RunId, TenantId,
    wire::notification::{NotificationChoices, NotificationService},
};
use rusqlite::params;

use super::{
    SqlStore,
    connection::{Connection, OptionalExtension as _, Row},
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, MAX_NOTIFICATION_TARGETS, MAX_TENANT_NOTIFICATION_TARGETS, NotificationStore, Result, WriteContext, entry,
    record::{
        delivery::DeliveryRecord,
        notification::{NewNotificationTarget, NotificationTargetRecord},
    },
};

/// The columns that [`target`] reads, with their table.
const TARGET: &str = "t.id, t.tenant, t.service, t.name, t.user, t.key, t.origin, t.address, t.sealed, t.choices, \
     t.created from notification_targets t";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn create_notification_target(
        &mut self,
        context: &WriteContext,
        new: NewNotificationTarget,
    ) -> Result<NotificationTargetRecord> {
        self.cache.head(context.tenant).ok_or(Error::NotFound)?;
        let own = read_targets(self.connection, context.tenant)?;
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
        self.log(context.tenant, context.stamp(), &entry::notification::added(&target), None)?;
        self.connection
            .prepare_cached(
                "insert into notification_targets
                    (id, tenant, service, name, user, key, origin, address, sealed, choices, created)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                IdBytes(target.id.uuid()),
                IdBytes(target.tenant.uuid()),
                target.service.as_str(),
                target.name,
                target.user.map(|user| IdBytes(user.uuid())),
                IdBytes(target.key.uuid()),
                target.origin,
                target.address,
                target.sealed,
                Json::of(&target.choices).get(),
                target.created_at.millis(),
            ])?;
        Ok(target)
    }

    fn update_notification_target(
        &mut self,
        context: &WriteContext,
        id: NotificationTargetId,
        choices: NotificationChoices,
    ) -> Result<NotificationTargetRecord> {
        let before = read_target(self.connection, context.tenant, id)?;
        self.connection
            .prepare_cached("update notification_targets set choices = ?2 where id = ?1")?
            .execute(params![IdBytes(id.uuid()), Json::of(&choices).get()])?;
        self.log(context.tenant, context.stamp(), &entry::notification::changed(id), None)?;
        Ok(NotificationTargetRecord { choices, ..before })
    }

    fn remove_notification_target(&mut self, context: &WriteContext, id: NotificationTargetId) -> Result<()> {
        read_target(self.connection, context.tenant, id)?;
        self.connection
            .prepare_cached("delete from notification_targets where id = ?1")?
            .execute([IdBytes(id.uuid())])?;
        self.log(context.tenant, context.stamp(), &entry::notification::removed(id), None).map(drop)
    }

    fn add_notifications(
        &mut self,
        context: &WriteContext,
        run: RunId,
        seq: i64,
        targets: &[NotificationTargetId],
    ) -> Result<usize> {
        match self.own_run(context.tenant, run) {
            Ok(_) => {}
            Err(Error::NotFound) => return Ok(0),
            Err(error) => return Err(error),
        }
        let mut made = 0;
        for id in targets {
            let target = match read_target(self.connection, context.tenant, *id) {
                Ok(target) => target,
                Err(Error::NotFound) => continue,
                Err(error) => return Err(error),
            };
            let delivery = DeliveryRecord::notification(run, &target, seq, context.at);
            let is_known = self
                .connection
                .prepare_cached("select 1 from deliveries where id = ?1")?
                .exists([IdBytes(delivery.id.uuid())])?;
            if !is_known {
                self.deliver(&delivery)?;
                made += 1;
            }
        }
        Ok(made)
    }
}

fn read_target(
    connection: &Connection,
    tenant: TenantId,
    id: NotificationTargetId,
) -> Result<NotificationTargetRecord> {
    connection
        .prepare_cached(&format!("select {TARGET} where t.id = ?1 and t.tenant = ?2"))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], target)
        .optional()?
        .ok_or(Error::NotFound)
}

fn read_targets(connection: &Connection, tenant: TenantId) -> Result<Vec<NotificationTargetRecord>> {
    Ok(connection
        .prepare_cached(&format!("select {TARGET} where t.tenant = ?1 order by t.no"))?
        .query_map([IdBytes(tenant.uuid())], target)?
        .collect::<rusqlite::Result<_>>()?)
}

fn last_notified(connection: &Connection, tenant: TenantId) -> Result<Option<i64>> {
    Ok(connection
        .prepare_cached("select max(seq) from deliveries where tenant = ?1 and target is not null")?
        .query_row([IdBytes(tenant.uuid())], |row| row.get(0))?)
}

/// Reads [`TARGET`].
fn target(row: &Row<'_>) -> rusqlite::Result<NotificationTargetRecord> {
    let service = NotificationService::from_text(&row.text(2)?)
        .ok_or_else(|| rows::corrupt(2, "an unknown service of a notification target"))?;
    let choices = serde_json::from_str(&row.text(9)?)
        .map_err(|_| rows::corrupt(9, "unreadable choices of a notification target"))?;
    Ok(NotificationTargetRecord {
        id: rows::notification_target_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        service,
        name: row.get(3)?,
        user: row.get::<Option<_>>(4)?.map(rows::user_id),
        key: rows::key_id(row.get(5)?),
        origin: row.get(6)?,
        address: row.get(7)?,
        sealed: row.get(8)?,
        choices,
        created_at: rows::time(row, 10)?,
    })
}

// === impl SqlStore ===

#[async_trait]
impl NotificationStore for SqlStore {
    async fn create_notification_target(
        &self,
        context: WriteContext,
        target: NewNotificationTarget,
    ) -> Result<NotificationTargetRecord> {
        self.write(move |transaction| transaction.create_notification_target(&context, target)).await
    }

    async fn update_notification_target(
        &self,
        context: WriteContext,
        target: NotificationTargetId,
        choices: NotificationChoices,
    ) -> Result<NotificationTargetRecord> {
        self.write(move |transaction| transaction.update_notification_target(&context, target, choices)).await
    }

    async fn remove_notification_target(&self, context: WriteContext, target: NotificationTargetId) -> Result<()> {
        self.write(move |transaction| transaction.remove_notification_target(&context, target)).await
    }

    async fn notification_target(
        &self,
        tenant: TenantId,
        target: NotificationTargetId,
    ) -> Result<NotificationTargetRecord> {
        self.read(move |connection| read_target(connection, tenant, target)).await
    }

    async fn notification_targets(&self, tenant: TenantId) -> Result<Vec<NotificationTargetRecord>> {
        self.read(move |connection| read_targets(connection, tenant)).await
    }

    async fn add_notifications(
        &self,
        context: WriteContext,
        run: RunId,
        seq: i64,
        targets: Vec<NotificationTargetId>,
    ) -> Result<usize> {
        self.write(move |transaction| transaction.add_notifications(&context, run, seq, &targets)).await
    }

    async fn last_notified(&self, tenant: TenantId) -> Result<Option<i64>> {
        self.read(move |connection| last_notified(connection, tenant)).await
    }
}
