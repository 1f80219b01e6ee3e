//! Short-lived values that nodes share.

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp};
use rusqlite::params;

use super::{
    SqlStore,
    connection::{Connection, OptionalExtension as _, Row},
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Result, SharedValueStore,
    record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};

/// The columns that [`value`] reads, with their table.
const VALUE: &str = "kind, name, tenant, holder, value, expires from shared_values";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn drop_expired_values(&self, at: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached("delete from shared_values where expires <= ?1")?
            .execute_later([at.millis()])?;
        Ok(())
    }

    fn keep_value(&self, new: &SharedValue, limit: SharedValueLimit, at: Timestamp) -> Result<bool> {
        self.drop_expired_values(at)?;
        if let SharedValueLimit::Total { values, bytes, .. } = limit
            && !self.has_room_for_value(new, values, bytes)?
        {
            return Ok(false);
        }
        self.connection
            .prepare_cached(
                "insert into shared_values (kind, name, tenant, holder, value, expires) values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (kind, name) do update set tenant = excluded.tenant, holder = excluded.holder,
                    value = excluded.value, expires = excluded.expires",
            )?
            .execute(params![
                new.kind.as_str(),
                new.name,
                IdBytes(new.tenant.uuid()),
                new.holder,
                new.value,
                new.expires_at.millis(),
            ])?;
        if let SharedValueLimit::PerHolder(most) | SharedValueLimit::Total { per_holder: most, .. } = limit {
            self.connection
                .prepare_cached(
                    "delete from shared_values where kind = ?1 and tenant = ?2 and holder = ?3 and no <=
                        (select no from shared_values where kind = ?1 and tenant = ?2 and holder = ?3
                         order by no desc limit 1 offset ?4)",
                )?
                .execute(params![new.kind.as_str(), IdBytes(new.tenant.uuid()), new.holder, count(most)])?;
        }
        Ok(true)
    }

    fn has_room_for_value(&self, new: &SharedValue, values: usize, bytes: usize) -> Result<bool> {
        let (others, held): (i64, i64) = self
            .connection
            .prepare_cached(
                "select count(*), coalesce(sum(length(value)), 0) from shared_values where kind = ?1 and name <> ?2",
            )?
            .query_row(params![new.kind.as_str(), new.name], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(others < count(values) && held + count(new.value.len()) <= count(bytes))
    }

    fn take_value(
        &self,
        kind: SharedValueKind,
        name: &str,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<Option<SharedValue>> {
        let Some(found) = read_value(self.connection, kind, name, at)? else { return Ok(None) };
        let taken = SharedValue { expires_at: found.expires_at.min(until), ..found };
        if until <= at {
            self.connection
                .prepare_cached("delete from shared_values where kind = ?1 and name = ?2")?
                .execute(params![kind.as_str(), name])?;
        } else {
            self.connection
                .prepare_cached("update shared_values set expires = ?3 where kind = ?1 and name = ?2")?
                .execute(params![kind.as_str(), name, taken.expires_at.millis()])?;
        }
        Ok(Some(taken))
    }

    fn drop_values(&self, kind: SharedValueKind, tenant: TenantId, holder: &str) -> Result<()> {
        self.connection
            .prepare_cached("delete from shared_values where kind = ?1 and tenant = ?2 and holder = ?3")?
            .execute(params![kind.as_str(), IdBytes(tenant.uuid()), holder])?;
        Ok(())
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn read_value(
    connection: &Connection,
    kind: SharedValueKind,
    name: &str,
    at: Timestamp,
) -> Result<Option<SharedValue>> {
    Ok(connection
        .prepare_cached(&format!("select {VALUE} where kind = ?1 and name = ?2 and expires > ?3"))?
        .query_row(params![kind.as_str(), name, at.millis()], value)
        .optional()?)
}

fn read_values(connection: &Connection, kind: SharedValueKind, at: Timestamp) -> Result<Vec<SharedValue>> {
    Ok(connection
        .prepare_cached(&format!("select {VALUE} where kind = ?1 and expires > ?2 order by no"))?
        .query_map(params![kind.as_str(), at.millis()], value)?
        .collect::<rusqlite::Result<_>>()?)
}

fn read_holders(connection: &Connection, kind: SharedValueKind, at: Timestamp) -> Result<Vec<(TenantId, String)>> {
    Ok(connection
        .prepare_cached(
            "select distinct tenant, holder from shared_values where kind = ?1 and expires > ?2 order by tenant, holder",
        )?
        .query_map(params![kind.as_str(), at.millis()], |row| Ok((rows::tenant_id(row.get(0)?), row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?)
}

/// Reads [`VALUE`].
fn value(row: &Row<'_>) -> rusqlite::Result<SharedValue> {
    let kind = SharedValueKind::from_text(&row.get::<String>(0)?);
    Ok(SharedValue {
        kind: kind.ok_or_else(|| rows::corrupt(0, "an unknown kind of a shared value"))?,
        name: row.get(1)?,
        tenant: rows::tenant_id(row.get(2)?),
        holder: row.get(3)?,
        value: row.get(4)?,
        expires_at: rows::time(row, 5)?,
    })
}

// === impl SqlStore ===

#[async_trait]
impl SharedValueStore for SqlStore {
    async fn keep_value(&self, value: SharedValue, limit: SharedValueLimit, at: Timestamp) -> Result<bool> {
        self.write(move |transaction| transaction.keep_value(&value, limit, at)).await
    }

    async fn shared_value(&self, kind: SharedValueKind, name: &str, at: Timestamp) -> Result<Option<SharedValue>> {
        let name = name.to_owned();
        self.read(move |connection| read_value(connection, kind, &name, at)).await
    }

    async fn shared_values(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<SharedValue>> {
        self.read(move |connection| read_values(connection, kind, at)).await
    }

    async fn value_holders(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<(TenantId, String)>> {
        self.read(move |connection| read_holders(connection, kind, at)).await
    }

    async fn take_value(
        &self,
        kind: SharedValueKind,
        name: &str,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<Option<SharedValue>> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.take_value(kind, &name, until, at)).await
    }

    async fn drop_values(&self, kind: SharedValueKind, tenant: TenantId, holder: &str) -> Result<()> {
        let holder = holder.to_owned();
        self.write(move |transaction| transaction.drop_values(kind, tenant, &holder)).await
    }
}
