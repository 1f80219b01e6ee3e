//! Delegations as daemons publish them.

use async_trait::async_trait;
use attache_protocol::{DelegationId, TenantId, Timestamp, rules::delegation::Status};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};

use super::{
    Sqlite, lists,
    rows::{self, Key16},
    writer::Transaction,
};
use crate::{
    Context, Delegations, Error, Result, entry,
    record::{
        Listed, Page,
        delegation::{Delegation, DelegationFilter, NewDelegation},
    },
};

/// The columns that [`delegation`] reads, with their table.
const DELEGATION: &str =
    "d.uid, d.tenant, d.owner, d.status, d.shown, d.cancel_requested, d.updated from delegations d";

// === impl Transaction ===

impl Transaction<'_, '_> {
    fn publish_delegation(&mut self, context: &Context, new: NewDelegation) -> Result<Delegation> {
        let before = self
            .connection
            .prepare_cached(&format!("select {DELEGATION} where d.uid = ?1"))?
            .query_row([Key16(new.id.uuid())], delegation)
            .optional()?;
        match &before {
            Some(before) if before.tenant != context.tenant || before.owner != new.owner => {
                return Err(Error::NotFound);
            }
            Some(_) => {}
            None => drop(self.cache.head(context.tenant).ok_or(Error::NotFound)?),
        }
        let is_changed = before.as_ref().is_none_or(|before| before.status != new.status);
        let cancel_requested = before.is_some_and(|before| before.cancel_requested);
        let delegation = new.made(context.tenant, cancel_requested, context.at);
        self.connection
            .prepare_cached(
                "insert into delegations (uid, tenant, owner, status, shown, cancel_requested, updated)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 on conflict (uid) do update set status = excluded.status, shown = excluded.shown,
                    updated = excluded.updated",
            )?
            .execute(params![
                Key16(delegation.id.uuid()),
                Key16(delegation.tenant.uuid()),
                delegation.owner,
                delegation.status.as_str(),
                delegation.shown.get(),
                delegation.cancel_requested,
                delegation.updated_at.millis(),
            ])?;
        if is_changed {
            let row = entry::delegation::changed(delegation.id, delegation.status);
            self.log(context.tenant, context.stamp(), &row, None)?;
        }
        Ok(delegation)
    }

    fn cancel_delegation(&mut self, context: &Context, id: DelegationId) -> Result<Delegation> {
        let before = read_delegation(self.connection, context.tenant, id)?;
        if before.status.has_ended() || before.cancel_requested {
            return Ok(before);
        }
        self.connection
            .prepare_cached("update delegations set cancel_requested = 1 where uid = ?1")?
            .execute([Key16(id.uuid())])?;
        self.log(context.tenant, context.stamp(), &entry::delegation::cancel_requested(id), None)?;
        Ok(Delegation { cancel_requested: true, ..before })
    }

    /// Forgets those that have ended and are old.
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

fn read_delegation(connection: &Connection, tenant: TenantId, id: DelegationId) -> Result<Delegation> {
    connection
        .prepare_cached(&format!("select {DELEGATION} where d.uid = ?1 and d.tenant = ?2"))?
        .query_row([Key16(id.uuid()), Key16(tenant.uuid())], delegation)
        .optional()?
        .ok_or(Error::NotFound)
}

fn delegations(
    connection: &Connection,
    tenant: TenantId,
    filter: &DelegationFilter,
    page: &Page,
) -> Result<Listed<Delegation>> {
    let tenant = Key16(tenant.uuid());
    let (before, limit) = (lists::before(page)?, lists::one_more(page));
    let mut values: Vec<&dyn ToSql> = vec![&tenant, &before, &limit];
    let mut condition = "";
    if let Some(owner) = &filter.owner {
        values.push(owner);
        condition = " and d.owner = ?4";
    }
    let selection = format!("{DELEGATION} where d.tenant = ?1 and d.no < ?2{condition}");
    lists::newest(connection, "d.no", &selection, &values, page, delegation)
}

/// Reads [`DELEGATION`].
fn delegation(row: &Row<'_>) -> rusqlite::Result<Delegation> {
    let said = row.get_ref(3)?.as_str()?;
    let status = Status::ALL.into_iter().find(|status| status.as_str() == said);
    let status = status.ok_or_else(|| rows::corrupt(3, "an unknown status of a delegation"))?;
    Ok(Delegation {
        id: rows::delegation_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        owner: row.get(2)?,
        status,
        shown: rows::json(row, 4)?,
        cancel_requested: row.get(5)?,
        updated_at: rows::time(row, 6)?,
    })
}

// === impl Sqlite ===

#[async_trait]
impl Delegations for Sqlite {
    async fn publish_delegation(&self, context: Context, delegation: NewDelegation) -> Result<Delegation> {
        self.write(move |transaction| transaction.publish_delegation(&context, delegation)).await
    }

    async fn delegation(&self, tenant: TenantId, delegation: DelegationId) -> Result<Delegation> {
        self.read(move |connection| read_delegation(connection, tenant, delegation)).await
    }

    async fn delegations(&self, tenant: TenantId, filter: DelegationFilter, page: Page) -> Result<Listed<Delegation>> {
        self.read(move |connection| delegations(connection, tenant, &filter, &page)).await
    }

    async fn cancel_delegation(&self, context: Context, delegation: DelegationId) -> Result<Delegation> {
        self.write(move |transaction| transaction.cancel_delegation(&context, delegation)).await
    }
}
