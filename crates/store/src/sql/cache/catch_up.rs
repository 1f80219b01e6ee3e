//! Names what a transaction changed of the writer's memory, and follows what another writer named.

use std::collections::BTreeMap;

use attache_protocol::{Json, Timestamp, rules::retention};

use super::{CacheUndo, IdempotencyKey, LogHead, MemoryChanges, WriterCache};
use crate::sql::{
    connection::Connection,
    log_keys::LogKeys,
    rows::{self, RunState},
    usage_ledger,
};

/// How many runs are read one by one. If more changed, everything is read.
const MAX_RUNS: usize = 50_000;

/// A run that another writer created or moved, as it is now.
struct ChangedRun {
    row: i64,
    /// `None` if it can't be read.
    hot: Option<RunState>,
    ended: Option<Timestamp>,
    usage: Option<Json>,
    key: Option<IdempotencyKey>,
    created: Timestamp,
}

// === impl WriterCache ===

impl WriterCache {
    /// What the open transaction changed. Whatever it could undo, others must learn.
    pub(in crate::sql) fn changes(&self) -> MemoryChanges {
        let mut changes = MemoryChanges::default();
        for undo in &self.undo {
            match undo {
                CacheUndo::Head(tenant, _) => {
                    if let Some(head) = self.heads.get(tenant) {
                        changes.heads.insert(*tenant, (head.keys.at(head.seq), head.hash));
                    }
                }
                CacheUndo::Track(from, to) => changes.runs.extend(to.as_ref().or(from.as_ref()).map(|hot| hot.row)),
                CacheUndo::ForgottenRow(row) => {
                    changes.runs.insert(*row);
                }
                // They come with the rows of their runs.
                CacheUndo::Key(..) => {}
                CacheUndo::ForgottenKey { key: (tenant, key), row, created, .. } => {
                    changes.forgotten_keys.push((*tenant, *key, *row, created.millis()));
                }
                CacheUndo::RunningFloor(_) => changes.running_floor = Some(self.running_floor),
                CacheUndo::Clock(_) => changes.clock = self.clock.map(Timestamp::millis),
                CacheUndo::Subscribed(run, _) => {
                    changes.subscribed.insert(*run, self.subscribed.contains(run));
                }
            }
        }
        self.ledger.note_changes(&mut changes);
        changes
    }

    /// Follows what other writers changed. Returns false, and does nothing, if it is better to read everything.
    pub(in crate::sql) fn catch_up(
        &mut self,
        connection: &Connection,
        changes: &MemoryChanges,
    ) -> rusqlite::Result<bool> {
        if self.counted.is_none() || changes.runs.len() > MAX_RUNS {
            return Ok(false);
        }
        // First everything that may fail.
        let quotas = if changes.quotas { Some(usage_ledger::read_quotas(connection)?) } else { None };
        let runs = if changes.runs.is_empty() { BTreeMap::new() } else { read_runs(connection, changes)? };
        if changes.ended.iter().any(|row| !runs.contains_key(row)) {
            return Ok(false);
        }

        for (tenant, (key, hash)) in &changes.heads {
            let (keys, seq) = LogKeys::split(*key);
            self.heads.insert(*tenant, LogHead { keys, seq, hash: *hash });
        }
        if let Some(clock) = changes.clock {
            self.clock = Some(Timestamp::from_millis(clock));
        }
        if let Some(floor) = changes.running_floor {
            self.running_floor = floor;
        }
        for (tenant, key, row, created) in &changes.forgotten_keys {
            self.drop_key((*tenant, *key), *row, Timestamp::from_millis(*created));
        }
        for (run, is_subscribed) in &changes.subscribed {
            if *is_subscribed {
                self.subscribed.insert(*run);
            } else {
                self.subscribed.remove(run);
            }
        }
        self.ledger.catch_up(changes, quotas);
        self.damaged.retain(|row| !changes.runs.contains(row));
        for row in &changes.runs {
            let before = self.counted.as_mut().and_then(|counted| counted.remove(row));
            let now = runs.get(row);
            self.count(*row, before.as_ref(), now.and_then(|run| run.hot.as_ref()));
            if let Some(run) = now {
                self.follow_row(run);
            }
        }
        for row in &changes.ended {
            if let Some(ChangedRun { hot: Some(hot), ended: Some(ended), usage, .. }) = runs.get(row) {
                self.ledger.spend(hot, *ended, usage.as_ref());
            }
        }
        // Nothing of this belongs to the transaction that has just begun.
        self.commit();
        Ok(true)
    }

    fn follow_row(&mut self, run: &ChangedRun) {
        if run.hot.is_none() && run.ended.is_none() {
            self.damaged.push(run.row);
        }
        if let Some(key) = run.key
            && !retention::is_key_over(run.created, self.clock)
            && self.keys.get(&key).is_none_or(|known| *known < run.row)
        {
            self.remember_key(key, run.row, run.created);
        }
    }
}

/// By row. Left out are those that were removed since.
fn read_runs(connection: &Connection, changes: &MemoryChanges) -> rusqlite::Result<BTreeMap<i64, ChangedRun>> {
    let wanted = changes.runs.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let mut statement = connection.prepare_cached(&format!(
        "select {}, ended, case when ended is null then null else usage end, substr(idempotency, 1, 16) from task_runs
         where id = any(cast(string_to_array(?1, ',') as bigint[]))",
        rows::RUN_STATE
    ))?;
    let mut runs = BTreeMap::new();
    let mut found = statement.query([wanted])?;
    while let Some(row) = found.next()? {
        let number = row.get(0)?;
        let read = rows::run_state(&row).and_then(|hot| {
            let key = row.get::<Option<[u8; 16]>>(12)?.map(|key| (hot.tenant, key));
            Ok((hot, rows::maybe_json(&row, 11)?, key))
        });
        let read = rows::readable("task_runs", number, read)?;
        let (hot, usage, key) = read.map_or((None, None, None), |(hot, usage, key)| (Some(hot), usage, key));
        let (ended, created) = (rows::maybe_time(&row, 10)?, rows::time(&row, 7)?);
        runs.insert(number, ChangedRun { row: number, hot, ended, usage, key, created });
    }
    Ok(runs)
}
