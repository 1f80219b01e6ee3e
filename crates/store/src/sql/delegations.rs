//! Delegations as published by daemons.

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{Actor, DelegationId, TenantId, Timestamp, rules::delegation::DelegationStatus};
use rusqlite::{ToSql, params};

use super::{
    SqlStore, lists,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    DelegationStore, Error, Result, WriteContext, entry,
    record::{
        ListPage, Pagination,
        delegation::{DelegationFilter, DelegationRecord, DelegationUpdate},
    },
};

/// The columns that [`delegation`] reads, with their table.
const DELEGATION: &str = "d.uid, d.tenant, d.owner, d.status, d.shown, d.cancel_requested, d.updated, d.agent \
     from delegations d";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn publish_delegation(&mut self, context: &WriteContext, new: DelegationUpdate) -> Result<DelegationRecord> {
        let before = self
            .connection
            .prepare_cached(&format!("select {DELEGATION} where d.uid = ?1"))?
            .query_row([IdBytes(new.id.uuid())], delegation)
            .optional()?;
        match &before {
            Some(before) if before.tenant != context.tenant || before.owner != new.owner => {
                return Err(Error::NotFound);
            }
            Some(_) => {}
            None => drop(self.cache.head(context.tenant).ok_or(Error::NotFound)?),
        }
        let is_changed = before.as_ref().is_none_or(|before| before.status != new.status);
        let delegation = new.into_record(before.as_ref(), context.tenant, context.at);
        self.connection
            .prepare_cached(
                "insert into delegations (uid, tenant, owner, status, shown, cancel_requested, updated, agent)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
                 on conflict (uid) do update set status = excluded.status, shown = excluded.shown,
                    updated = excluded.updated",
            )?
            .execute(params![
                IdBytes(delegation.id.uuid()),
                IdBytes(delegation.tenant.uuid()),
                delegation.owner.to_string(),
                delegation.status.as_str(),
                delegation.shown.get(),
                delegation.cancel_requested,
                delegation.updated_at.millis(),
                delegation.agent.map(|agent| IdBytes(agent.uuid())),
            ])?;
        if is_changed {
            let row = entry::delegation::changed(delegation.id, delegation.status);
            self.log(context.tenant, context.stamp(), &row, None)?;
        }
        Ok(delegation)
    }

    fn cancel_delegation(&mut self, context: &WriteContext, id: DelegationId) -> Result<DelegationRecord> {
        let before = read_delegation(self.connection, context.tenant, id)?;
        if before.status.has_ended() || before.cancel_requested {
            return Ok(before);
        }
        self.connection
            .prepare_cached("update delegations set cancel_requested = 1 where uid = ?1")?
            .execute([IdBytes(id.uuid())])?;
        self.log(context.tenant, context.stamp(), &entry::delegation::cancel_requested(id), None)?;
        Ok(DelegationRecord { cancel_requested: true, ..before })
    }

    /// Removes old delegations that have ended.
    pub(super) fn cut_delegations(&self, before: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached(
                "delete from delegations
                 where updated < ?1 and status in ('completed', 'error', 'cancelled', 'expired')",
            )?
            .execute([before.millis()])?;
        Ok(())
    }
}

fn read_delegation(connection: &Connection, tenant: TenantId, id: DelegationId) -> Result<DelegationRecord> {
    connection
        .prepare_cached(&format!("select {DELEGATION} where d.uid = ?1 and d.tenant = ?2"))?
        .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], delegation)
        .optional()?
        .ok_or(Error::NotFound)
}

fn delegations(
    connection: &Connection,
    tenant: TenantId,
    filter: &DelegationFilter,
    page: &Pagination,
) -> Result<ListPage<DelegationRecord>> {
    let tenant = IdBytes(tenant.uuid());
    let (before, limit) = (lists::before(page)?, lists::one_more(page));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    let mut condition = "";
    let owner = filter.owner.as_ref().map(Actor::to_string);
    if let Some(owner) = &owner {
        values.push(owner);
        condition = " and d.owner = ?4";
    }
    let selection = format!("{DELEGATION} where d.tenant = ?1 and d.no < ?2{condition}");
    lists::newest(connection, "d.no", &selection, &values, page, delegation)
}

/// Reads [`DELEGATION`].
fn delegation(row: &Row<'_>) -> rusqlite::Result<DelegationRecord> {
    let said: String = row.get(3)?;
    let status = DelegationStatus::ALL.into_iter().find(|status| status.as_str() == said);
    let status = status.ok_or_else(|| rows::corrupt(3, "an unknown status of a delegation"))?;
    Ok(DelegationRecord {
        id: rows::delegation_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        owner: rows::actor(row, 2)?,
        status,
        shown: rows::json(row, 4)?,
        cancel_requested: row.get(5)?,
        updated_at: rows::time(row, 6)?,
        agent: row.get::<Option<_>>(7)?.map(rows::agent_id),
    })
}

// === impl SqlStore ===

#[async_trait]
impl DelegationStore for SqlStore {
    async fn publish_delegation(
        &self,
        context: WriteContext,
        delegation: DelegationUpdate,
    ) -> Result<DelegationRecord> {
        self.write(move |transaction| transaction.publish_delegation(&context, delegation)).await
    }

    async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<DelegationRecord> {
        self.read(move |connection| read_delegation(connection, tenant, delegation)).await
    }

    async fn delegations(
        &self,
        tenant: TenantId,
        filter: DelegationFilter,
        page: Pagination,
    ) -> Result<ListPage<DelegationRecord>> {
        self.read(move |connection| delegations(connection, tenant, &filter, &page)).await
    }

    async fn cancel_delegation(&self, context: WriteContext, delegation: DelegationId) -> Result<DelegationRecord> {
        self.write(move |transaction| transaction.cancel_delegation(&context, delegation)).await
    }
}
