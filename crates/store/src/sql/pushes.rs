//! Push notification configs, and the deliveries they cause.

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{EventKind, RunId, TenantId, Timestamp};
use rusqlite::params;

use super::{
    SqlStore,
    rows::{self, IdBytes, RunState},
    writer::WriteTransaction,
};
use crate::{
    Error, MAX_PUSH_CONFIGS, PushStore, Result, WriteContext, entry,
    record::{
        delivery::DeliveryRecord,
        push::{NewPushConfig, PushConfigRecord, PushVersion},
    },
};

/// The columns that [`config`] reads, with their table.
const CONFIG: &str = "p.id, p.url, p.sealed, p.version, p.created from push_configs p";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn set_push_config(&mut self, context: &WriteContext, run: RunId, new: NewPushConfig) -> Result<PushConfigRecord> {
        let hot = self.own_run(context.tenant, run)?;
        let configs = self.configs_of(&hot)?;
        let known = configs.iter().find(|known| known.id == new.id);
        if known.is_none() && configs.len() >= MAX_PUSH_CONFIGS {
            return Err(Error::TooManyPushConfigs);
        }
        let config = new.into_record(known.map_or(context.at, |known| known.created_at));
        self.put_config(&hot, &config)?;
        self.log(context.tenant, context.stamp(), &entry::push_configured(run, &config.id), None)?;
        Ok(config)
    }

    /// The config a new run comes with, after the run's first row.
    pub(super) fn push_from_start(&mut self, context: &WriteContext, hot: &RunState, new: NewPushConfig) -> Result<()> {
        let config = new.into_record(context.at);
        self.put_config(hot, &config)?;
        self.log(context.tenant, context.stamp(), &entry::push_configured(hot.id, &config.id), None).map(drop)
    }

    fn put_config(&mut self, hot: &RunState, config: &PushConfigRecord) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into push_configs (run, id, url, sealed, version, created) values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (run, id) do update
                     set url = excluded.url, sealed = excluded.sealed, version = excluded.version",
            )?
            .execute(params![
                hot.row,
                config.id,
                config.url,
                config.sealed,
                version_number(config.version),
                config.created_at.millis()
            ])?;
        if !hot.state.status().is_terminal() {
            self.cache.subscribe(hot.id);
        }
        Ok(())
    }

    fn remove_push_config(&mut self, context: &WriteContext, run: RunId, id: &str) -> Result<()> {
        let hot = self.own_run(context.tenant, run)?;
        let removed = self
            .connection
            .prepare_cached("delete from push_configs where run = ?1 and id = ?2")?
            .execute(params![hot.row, id])?;
        if removed == 0 {
            return Err(Error::NotFound);
        }
        if self.configs_of(&hot)?.is_empty() {
            self.cache.unsubscribe(run);
        }
        self.log(context.tenant, context.stamp(), &entry::push_removed(run, id), None).map(drop)
    }

    fn configs_of(&self, hot: &RunState) -> Result<Vec<PushConfigRecord>> {
        Ok(self
            .connection
            .prepare_cached(&format!("select {CONFIG} where p.run = ?1 order by p.no"))?
            .query_map([hot.row], config)?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// Adds a delivery for every subscriber of a run whose newest row has this type. Only the writer's memory is
    /// consulted for whether there are any.
    pub(super) fn push(&mut self, hot: &RunState, at: Timestamp, kind: EventKind) -> Result<()> {
        if !kind.is_pushed() || !self.cache.is_subscribed(hot.id) {
            return Ok(());
        }
        for config in self.configs_of(hot)? {
            self.deliver(&DeliveryRecord::push(hot.tenant, hot.id, &config, hot.last_seq, at))?;
        }
        if kind.is_terminal() {
            self.cache.unsubscribe(hot.id);
        }
        Ok(())
    }

    /// Removes the configs of runs that ended before this.
    pub(super) fn cut_pushes(&self, before: Timestamp) -> Result<()> {
        self.connection
            .prepare_cached(
                "delete from push_configs
                 where exists (select 1 from task_runs r where r.id = push_configs.run and r.ended < ?1)",
            )?
            .execute([before.millis()])?;
        Ok(())
    }
}

fn read_configs(connection: &Connection, tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>> {
    let row: i64 = connection
        .prepare_cached("select id from task_runs where uid = ?1 and tenant = ?2")?
        .query_row([IdBytes(run.uuid()), IdBytes(tenant.uuid())], |row| row.get(0))
        .optional()?
        .ok_or(Error::NotFound)?;
    Ok(connection
        .prepare_cached(&format!("select {CONFIG} where p.run = ?1 order by p.no"))?
        .query_map([row], config)?
        .collect::<rusqlite::Result<_>>()?)
}

/// The live runs with subscribers.
pub(super) fn subscribed(connection: &Connection) -> rusqlite::Result<Vec<RunId>> {
    connection
        .prepare(
            "select distinct r.uid from push_configs p cross join task_runs r on r.id = p.run where r.ended is null",
        )?
        .query_map((), |row| row.get(0).map(rows::run_id))?
        .collect()
}

const fn version_number(version: PushVersion) -> i64 {
    match version {
        PushVersion::V10 => 10,
        PushVersion::V03 => 3,
    }
}

/// Reads [`CONFIG`].
fn config(row: &Row<'_>) -> rusqlite::Result<PushConfigRecord> {
    let version = match row.get(3)? {
        10 => PushVersion::V10,
        3 => PushVersion::V03,
        _ => return Err(rows::corrupt(3, "an unknown version of A2A")),
    };
    let created_at = rows::time(row, 4)?;
    Ok(PushConfigRecord { id: row.get(0)?, url: row.get(1)?, sealed: row.get(2)?, version, created_at })
}

// === impl SqlStore ===

#[async_trait]
impl PushStore for SqlStore {
    async fn set_push_config(
        &self,
        context: WriteContext,
        run: RunId,
        config: NewPushConfig,
    ) -> Result<PushConfigRecord> {
        self.write(move |transaction| transaction.set_push_config(&context, run, config)).await
    }

    async fn push_config(&self, tenant: TenantId, run: RunId, id: &str) -> Result<PushConfigRecord> {
        let configs = self.push_configs(tenant, run).await?;
        configs.into_iter().find(|config| config.id == id).ok_or(Error::NotFound)
    }

    async fn push_configs(&self, tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>> {
        self.read(move |connection| read_configs(connection, tenant, run)).await
    }

    async fn remove_push_config(&self, context: WriteContext, run: RunId, id: &str) -> Result<()> {
        let id = id.to_owned();
        self.write(move |transaction| transaction.remove_push_config(&context, run, &id)).await
    }
}
