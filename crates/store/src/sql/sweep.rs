//! Effects of time: deadlines, lost runtimes, and retention.

use std::time::Duration;

use super::connection::OptionalExtension as _;
use attache_protocol::{
    TenantId, Timestamp,
    rules::{retention, run::RunCommand},
};
use rusqlite::params;

use super::{
    journal::{LogStamp, TransitionWrites},
    lists,
    log_keys::LogKeys,
    rows,
    writer::{TOUCH, WriteTransaction},
};
use crate::{
    Result, WriteContext, entry,
    record::{RetentionLimits, RetentionResult, SweepResult},
};

/// How far the floor of running runs may lag before it is stored again.
const FLOOR_STEP: i64 = 1000;
/// How many runs a sweep lists under their agents, so that it never blocks the writer for long.
const LISTED_PER_SWEEP: i64 = 20_000;

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn sweep(&mut self, silence: Duration, at: Timestamp) -> Result<SweepResult> {
        let mut swept = SweepResult::default();
        let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
        let silent = self
            .connection
            .prepare_cached(
                "select id, tenant, agent from agent_runtimes where state = 0 and online = 1 and heartbeat <= ?1
                 order by no",
            )?
            .query_map([at.minus(silence).millis()], |row| {
                Ok((rows::runtime_id(row.get(0)?), rows::tenant_id(row.get(1)?), rows::agent_id(row.get(2)?)))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for (runtime, tenant, agent) in silent {
            self.runtime_gone(tenant, agent, runtime, stamp)?;
            swept.offline.push(runtime);
        }
        for row in self.cache.take_damaged() {
            self.end_damaged(row, at)?;
        }
        for row in self.cache.due(at) {
            let Some(hot) = self.live_at(row, at)? else { continue };
            let after = self.step(&hot, &RunCommand::Tick, stamp, TransitionWrites::default())?;
            if after.state != hot.state {
                swept.runs.push(hot.id);
            }
        }
        self.expire_permissions(at, &mut swept.runs)?;
        self.expire_worker_requests(at, &mut swept.runs)?;
        self.drop_expired_values(at)?;
        self.write_usage()?;
        self.list_new_runs()?;
        self.raise_running_floor()?;
        Ok(swept)
    }

    pub(super) fn advance_clock(&mut self, step: Duration, at: Timestamp) -> Result<Timestamp> {
        // By the committed clock: what is forgotten here doesn't come back.
        self.cache.forget_old_keys();
        let (before, now) = (self.cache.clock(), retention::clock(self.cache.clock(), at, step));
        if before != Some(now) {
            self.set_number("clock", now.millis())?;
            self.cache.set_clock(now);
        }
        Ok(now)
    }

    /// Performs a test write.
    pub(super) fn touch(&self) -> Result<()> {
        self.connection.prepare_cached(TOUCH)?.execute(())?;
        Ok(())
    }

    /// Brings `agent_runs` closer to the newest run.
    fn list_new_runs(&self) -> Result<()> {
        let from = lists::agent_runs_upto(self.connection)?;
        let to: Option<i64> = self
            .connection
            .prepare_cached(
                "select max(id) from (select id from task_runs where id > ?1 order by id limit ?2) as following",
            )?
            .query_row([from, LISTED_PER_SWEEP], |row| row.get(0))?;
        let Some(to) = to else { return Ok(()) };
        self.connection
            .prepare_cached(
                "insert into agent_runs (agent, run) select agent, id from task_runs where id > ?1 and id <= ?2
                 order by agent, id",
            )?
            .execute([from, to])?;
        self.set_number("agent_runs_upto", to)
    }

    pub(super) fn set_number(&self, key: &str, value: i64) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into meta (key, value) values (?1, ?2) on conflict (key) do update set value = excluded.value",
            )?
            .execute_later(params![key, value])?;
        Ok(())
    }

    /// Start-up only looks for running runs above the floor, so a claim below it must lower it first.
    pub(super) fn lower_running_floor(&mut self, row: i64) -> Result<()> {
        if row < self.cache.running_floor() { self.set_running_floor(row) } else { Ok(()) }
    }

    fn raise_running_floor(&mut self) -> Result<()> {
        let newest: Option<i64> =
            self.connection.prepare_cached("select max(id) from task_runs")?.query_row((), |row| row.get(0))?;
        let floor = self.cache.running().next().unwrap_or(newest.unwrap_or(0) + 1);
        if floor >= self.cache.running_floor() + FLOOR_STEP { self.set_running_floor(floor) } else { Ok(()) }
    }

    fn set_running_floor(&mut self, row: i64) -> Result<()> {
        self.set_number("running_floor", row)?;
        self.cache.set_running_floor(row);
        Ok(())
    }

    /// Moves the floors. [`Self::remove_chunks`] removes the rows below them in small steps.
    pub(super) fn retain(&mut self, retention: RetentionLimits) -> Result<RetentionResult> {
        self.connection.execute(
            "insert into meta (key, value) values ('chunks_before', ?1)
             on conflict (key) do update set value = excluded.value where meta.value < excluded.value",
            [retention.chunks_before.millis()],
        )?;
        self.connection.execute("delete from pairing_codes where expires < ?1", [retention.chunks_before.millis()])?;
        self.forget_deleted_keys()?;
        self.cut_deliveries(retention.log_before)?;
        self.cut_pushes(retention.log_before)?;
        self.cut_delegations(retention.log_before)?;
        // At start, the log is the source for runs that aren't summed up yet.
        self.write_usage()?;
        let tenants = self
            .connection
            .prepare_cached("select no, id from tenants order by no")?
            .query_map((), |row| Ok((row.get(0)?, rows::tenant_id(row.get(1)?))))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let mut more = false;
        for (no, tenant) in tenants {
            more |= self.cut_log(no, tenant, retention)?;
        }
        more |= self.remove_channels(retention)?;
        Ok(RetentionResult { more, blobs: Vec::new() })
    }

    /// Removes the oldest rows. Returns true if more of them are old enough.
    fn cut_log(&mut self, no: i64, tenant: TenantId, retention: RetentionLimits) -> Result<bool> {
        let [first, last] = LogKeys::of(no).all();
        let limit = i64::try_from(retention.max_rows).unwrap_or(i64::MAX).saturating_add(1);
        let old = self
            .connection
            .prepare_cached("select key, at from log where key between ?1 and ?2 order by key limit ?3")?
            .query_map([first, last, limit], |row| Ok((row.get::<i64>(0)?, rows::time(row, 1)?)))?
            .take_while(|row| !matches!(row, Ok((_, at)) if *at >= retention.log_before))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let more = old.len() > retention.max_rows;
        let Some((key, _)) = old.get(..old.len().min(retention.max_rows)).and_then(<[_]>::last).copied() else {
            return Ok(more);
        };
        let (seq, hash): (i64, [u8; 32]) = self
            .connection
            .prepare_cached("select seq, hash from log where key = ?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        self.connection.execute("delete from log where key between ?1 and ?2", [first, key])?;
        self.connection
            .execute("update tenants set log_floor = ?2, log_floor_hash = ?3 where no = ?1", params![no, seq, hash])?;
        self.cut_channel_events(no, seq)?;
        let stamp = LogStamp { actor: WriteContext::SYSTEM, at: retention.at };
        self.log(tenant, stamp, &entry::log_removed(seq, &hash), None)?;
        Ok(more)
    }

    /// Removes the chunks of up to `limit` runs after `after` that ended before `before`. Returns where to continue.
    pub(super) fn remove_chunks(&mut self, before: Timestamp, after: i64, limit: usize) -> Result<Option<i64>> {
        let mut last = after;
        for _ in 0..limit {
            let next = self
                .connection
                .prepare_cached("select run from chunks where run > ?1 order by run limit 1")?
                .query_row([last], |row| row.get(0))
                .optional()?;
            let Some(run) = next else { return Ok(None) };
            self.connection
                .prepare_cached(
                    "delete from chunks where run = ?1
                        and exists (select 1 from task_runs where id = ?1 and ended < ?2)",
                )?
                .execute(params![run, before.millis()])?;
            last = run;
        }
        Ok(Some(last))
    }
}
