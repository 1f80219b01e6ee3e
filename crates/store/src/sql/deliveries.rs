//! The outbox of webhooks.

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{
    DeliveryId, NodeId, PermissionId, RunId, TenantId, Timestamp,
    wire::delivery::{DeliveryKind, DeliveryState},
};
use rusqlite::{ToSql, params};

use super::{
    SqlStore,
    journal::LogStamp,
    lists,
    packed_state::StoredRunSpec,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    DeliveryStore, Error, Result, WakeHint, WriteContext, entry,
    record::{
        ListPage, Pagination,
        delivery::{AttemptDecision, DeliveryAttempt, DeliveryFilter, DeliveryRecord},
    },
};

/// The columns that [`delivery`] reads, with their table.
const DELIVERY: &str = "d.id, d.tenant, d.run, d.permission, d.url, d.state, d.attempts, d.next, d.last_at, \
     d.last_status, d.last_error, d.created, d.delivered, d.config, d.seq, d.target from deliveries d";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    /// Creates the callback delivery of an ended run.
    pub(super) fn call_back(&mut self, hot: &RunState, at: Timestamp) -> Result<()> {
        if !hot.calls_back {
            return Ok(());
        }
        let request: StoredRunSpec<'_> = self
            .connection
            .prepare_cached("select request from task_runs where id = ?1")?
            .query_row([hot.row], |row| row.get(0))?;
        match request.callback {
            Some(callback) => {
                self.deliver(&DeliveryRecord::due(hot.tenant, hot.id, None, callback.into_owned().url, at))
            }
            None => Ok(()),
        }
    }

    /// Creates the delivery for a permission that waits for a person.
    pub(super) fn notify(&mut self, hot: &RunState, permission: PermissionId, url: &str, at: Timestamp) -> Result<()> {
        self.deliver(&DeliveryRecord::due(hot.tenant, hot.id, Some(permission), url.to_owned(), at))
    }

    pub(super) fn deliver(&mut self, delivery: &DeliveryRecord) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into deliveries (id, tenant, run, permission, url, state, next, created, config, seq, target)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                IdBytes(delivery.id.uuid()),
                IdBytes(delivery.tenant.uuid()),
                IdBytes(delivery.run.uuid()),
                delivery.permission.map(|permission| IdBytes(permission.uuid())),
                delivery.url,
                state_text(delivery.state),
                delivery.next_at.map(Timestamp::millis),
                delivery.created_at.millis(),
                delivery.config,
                delivery.seq,
                delivery.target.map(|target| IdBytes(target.uuid())),
            ])?;
        self.woken.push(WakeHint::Deliveries);
        Ok(())
    }

    fn record_attempt(
        &mut self,
        id: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord> {
        let before = self
            .connection
            .prepare_cached(&format!("select {DELIVERY} where d.id = ?1"))?
            .query_row([IdBytes(id.uuid())], delivery)
            .optional()?
            .ok_or(Error::NotFound)?;
        if before.state != DeliveryState::Pending || number != before.attempts + 1 {
            return Ok(before);
        }
        let after = before.tried(attempt.clone(), next);
        self.update_delivery(&after)?;
        let row = match next {
            AttemptDecision::Delivered => Some(entry::user::delivery_delivered(&after, &attempt)),
            AttemptDecision::GiveUp => Some(entry::user::delivery_failed(&after, &attempt)),
            AttemptDecision::RetryAt(_) => None,
        };
        if let Some(row) = row {
            self.log(after.tenant, LogStamp { actor: WriteContext::SYSTEM, at: attempt.at }, &row, None)?;
        }
        Ok(after)
    }

    fn resend_delivery(&mut self, context: &WriteContext, id: DeliveryId) -> Result<DeliveryRecord> {
        let before = read_delivery(self.connection, context.tenant, id)?;
        let after = DeliveryRecord { state: DeliveryState::Pending, next_at: Some(context.at), ..before };
        self.update_delivery(&after)?;
        self.log(context.tenant, context.stamp(), &entry::user::delivery_resent(&after), None)?;
        self.woken.push(WakeHint::Deliveries);
        Ok(after)
    }

    fn update_delivery(&self, delivery: &DeliveryRecord) -> Result<()> {
        let last = delivery.last.as_ref();
        self.connection
            .prepare_cached(
                "update deliveries set state = ?2, attempts = ?3, next = ?4, last_at = ?5, last_status = ?6,
                    last_error = ?7, delivered = ?8, node = case when attempts = ?3 then node end
                 where id = ?1",
            )?
            .execute(params![
                IdBytes(delivery.id.uuid()),
                state_text(delivery.state),
                delivery.attempts,
                delivery.next_at.map(Timestamp::millis),
                last.map(|last| last.at.millis()),
                last.and_then(|last| last.status),
                last.and_then(|last| last.error.as_deref()),
                delivery.delivered_at.map(Timestamp::millis),
            ])?;
        Ok(())
    }

    /// Removes old settled deliveries.
    pub(super) fn cut_deliveries(&self, before: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached("delete from deliveries where state <> 'pending' and created < ?1")?
            .execute([before.millis()])?;
        Ok(())
    }
}

fn due_deliveries(
    connection: &Connection,
    node: Option<NodeId>,
    at: Timestamp,
    limit: usize,
) -> Result<Vec<DeliveryRecord>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(connection
        .prepare_cached(&format!(
            "select {DELIVERY} indexed by deliveries_due where d.state = 'pending' and d.next <= ?1
                and (d.node is null or d.node = ?3 or ?3 is null)
             order by d.next, d.no limit ?2"
        ))?
        .query_map(params![at.millis(), limit, node.map(|node| IdBytes(node.uuid()))], delivery)?
        .collect::<rusqlite::Result<_>>()?)
}

fn read_delivery(connection: &Connection, tenant: TenantId, id: DeliveryId) -> Result<DeliveryRecord> {
    connection
        .prepare_cached(&format!("select {DELIVERY} where d.id = ?1 and d.tenant = ?2"))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], delivery)
        .optional()?
        .ok_or(Error::NotFound)
}

fn deliveries(
    connection: &Connection,
    tenant: TenantId,
    filter: &DeliveryFilter,
    page: &Pagination,
) -> Result<ListPage<DeliveryRecord>> {
    let run = filter.run.map(|run: RunId| IdBytes(run.uuid()));
    let tenant = IdBytes(tenant.uuid());
    let (before, limit) = (lists::before(page)?, lists::one_more(page));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    let mut conditions = String::new();
    // A literal, because a partial index is only used if its condition appears literally.
    if let Some(state) = filter.state {
        conditions += &format!(" and d.state = '{}'", state_text(state));
    }
    if let Some(run) = &run {
        values.push(run);
        conditions += " and d.run = ?4";
    }
    let selection = format!("{DELIVERY} where d.tenant = ?1 and d.no < ?2{conditions}");
    lists::newest(connection, "d.no", &selection, &values, page, delivery)
}

const fn state_text(state: DeliveryState) -> &'static str {
    match state {
        DeliveryState::Pending => "pending",
        DeliveryState::Delivered => "delivered",
        DeliveryState::Failed => "failed",
    }
}

/// Reads [`DELIVERY`].
fn delivery(row: &Row<'_>) -> rusqlite::Result<DeliveryRecord> {
    let state = match row.get::<String>(5)?.as_str() {
        "pending" => DeliveryState::Pending,
        "delivered" => DeliveryState::Delivered,
        "failed" => DeliveryState::Failed,
        _ => return Err(rows::corrupt(5, "an unknown state of a delivery")),
    };
    let permission = row.get::<Option<_>>(3)?.map(rows::permission_id);
    let config: Option<String> = row.get(13)?;
    let target = row.get::<Option<_>>(15)?.map(rows::notification_target_id);
    let kind = match (&permission, &config, &target) {
        (Some(_), _, _) => DeliveryKind::PermissionRequested,
        (None, Some(_), _) => DeliveryKind::TaskUpdated,
        (None, None, Some(_)) => DeliveryKind::Notification,
        (None, None, None) => DeliveryKind::RunEnded,
    };
    let last = match rows::maybe_time(row, 8)? {
        Some(at) => Some(DeliveryAttempt { at, status: row.get(9)?, error: row.get(10)? }),
        None => None,
    };
    Ok(DeliveryRecord {
        id: rows::delivery_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        kind,
        run: rows::run_id(row.get(2)?),
        permission,
        config,
        seq: row.get(14)?,
        target,
        url: row.get(4)?,
        state,
        attempts: row.get(6)?,
        next_at: rows::maybe_time(row, 7)?,
        last,
        created_at: rows::time(row, 11)?,
        delivered_at: rows::maybe_time(row, 12)?,
    })
}

// === impl SqlStore ===

#[async_trait]
impl DeliveryStore for SqlStore {
    async fn due_deliveries(&self, node: Option<NodeId>, at: Timestamp, limit: usize) -> Result<Vec<DeliveryRecord>> {
        self.read(move |connection| due_deliveries(connection, node, at, limit)).await
    }

    async fn record_attempt(
        &self,
        delivery: DeliveryId,
        number: i64,
        attempt: DeliveryAttempt,
        next: AttemptDecision,
    ) -> Result<DeliveryRecord> {
        self.write(move |transaction| transaction.record_attempt(delivery, number, attempt, next)).await
    }

    async fn resend_delivery(&self, context: WriteContext, delivery: DeliveryId) -> Result<DeliveryRecord> {
        self.write(move |transaction| transaction.resend_delivery(&context, delivery)).await
    }

    async fn delivery(&self, tenant: TenantId, delivery: DeliveryId) -> Result<DeliveryRecord> {
        self.read(move |connection| read_delivery(connection, tenant, delivery)).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        page: Pagination,
    ) -> Result<ListPage<DeliveryRecord>> {
        self.read(move |connection| deliveries(connection, tenant, &filter, &page)).await
    }
}
