//! State the writer keeps in memory because a table would cost a write per call: log heads, deadlines, claims,
//! idempotency keys and usage. All of it is rebuilt from the tables at start, undone when a job is rolled back, and brought
//! up to date when another writer wrote in between.

mod catch_up;
mod changes;
#[cfg(any(test, feature = "conformance"))]
pub(super) mod comparison;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{
    ChannelId, RunId, RuntimeId, TenantId, Timestamp,
    rules::{
        quota::Spend,
        retention,
        run::{RunPhase, next_deadline},
    },
};

pub(super) use self::changes::MemoryChanges;
use super::{
    log_keys::LogKeys,
    pushes,
    rows::{self, RunState},
    usage_ledger::{UsageCell, UsageLedger},
};
use crate::record::LiveCounts;

/// How far a run's creation time may lie before that of an earlier run.
const OUT_OF_ORDER: Duration = Duration::from_secs(60 * 60);

/// The newest row of a tenant's log.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogHead {
    pub(super) keys: LogKeys,
    pub(super) seq: i64,
    pub(super) hash: [u8; 32],
}

type IdempotencyKey = (TenantId, [u8; 16]);

/// What is counted of a run that hasn't ended: enough to stop counting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveRun {
    pub(super) cell: UsageCell,
    /// What it holds of its quotas.
    pub(super) reserved: Spend,
    deadline: Option<Timestamp>,
    is_running: bool,
}

#[derive(Debug, Default)]
pub(super) struct WriterCache {
    heads: HashMap<TenantId, LogHead>,
    /// When each live run is due for a check.
    deadlines: BTreeSet<(Timestamp, i64)>,
    running: BTreeMap<i64, (RuntimeId, RunId)>,
    /// Claimed runs as the rules see them, so that worker calls need not read them.
    held: HashMap<RunId, RunState>,
    by_runtime: HashMap<RuntimeId, BTreeSet<i64>>,
    /// No running run has a smaller row id. Mirrors the table `meta`.
    running_floor: i64,
    live: HashMap<TenantId, LiveCounts>,
    /// Each live run as it was counted, to follow what other writers did to it. `None` without other writers.
    counted: Option<HashMap<i64, LiveRun>>,
    keys: HashMap<IdempotencyKey, i64>,
    /// In order of creation, so that old keys are dropped without a search.
    key_ages: BTreeSet<(Timestamp, i64, IdempotencyKey)>,
    /// Live runs with push configs. All others skip the table lookup.
    subscribed: HashSet<RunId>,
    /// Live runs that can't be read. The next sweep ends them.
    damaged: Vec<i64>,
    /// The clock for expiry. Mirrors the table `meta`.
    clock: Option<Timestamp>,
    pub(super) ledger: UsageLedger,
    /// For the open transaction, with all its jobs.
    undo: Vec<CacheUndo>,
    /// Where the current job's changes start.
    mark: usize,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "the list is short and reused; boxes would be allocated at every write")]
enum CacheUndo {
    Head(TenantId, Option<LogHead>),
    Track(Option<RunState>, Option<RunState>),
    Key(IdempotencyKey, Option<i64>),
    ForgottenKey {
        key: IdempotencyKey,
        row: i64,
        created: Timestamp,
        /// Whether no newer run had taken it.
        was_current: bool,
    },
    /// A damaged run, which isn't remembered again.
    ForgottenRow(i64),
    RunningFloor(i64),
    Clock(Option<Timestamp>),
    /// Whether it was subscribed before.
    Subscribed(RunId, bool),
}

// === impl WriterCache ===

impl WriterCache {
    /// Rebuilds everything from the tables.
    pub(super) fn rebuild(connection: &Connection) -> rusqlite::Result<Self> {
        let counted = connection.has_other_writers().then(HashMap::new);
        let mut cache = Self { ledger: UsageLedger::rebuild(connection)?, counted, ..Self::default() };
        cache.read_heads(connection)?;
        cache.read_live_runs(connection)?;
        cache.clock = read_clock(connection)?;
        cache.read_keys(connection)?;
        cache.subscribed.extend(pushes::subscribed(connection)?);
        cache.undo.clear();
        Ok(cache)
    }

    fn read_heads(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let mut tenants = connection.prepare("select id, no, log_floor, log_floor_hash from tenants")?;
        let mut newest =
            connection.prepare("select seq, hash from log where key between ?1 and ?2 order by key desc limit 1")?;
        let mut found = tenants.query(())?;
        while let Some(row) = found.next()? {
            let id: [u8; 16] = row.get(0)?;
            let keys = LogKeys::of(row.get(1)?);
            let floor = LogHead { keys, seq: row.get(2)?, hash: row.get(3)? };
            let head = newest
                .query_map(keys.all(), |row| Ok(LogHead { keys, seq: row.get(0)?, hash: row.get(1)? }))?
                .next()
                .transpose()?
                .unwrap_or(floor);
            self.heads.insert(rows::tenant_id(id), head);
        }
        Ok(())
    }

    fn read_live_runs(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Pending runs have an index. Running ones are all at or above the floor that the sweep maintains.
        self.running_floor = connection
            .query_row("select value from meta where key = 'running_floor'", (), |row| row.get(0))
            .optional()?
            .unwrap_or(0);
        let sql = format!(
            "select {0} from task_runs where status = 0
             union all
             select {0} from task_runs where status = 1 and id >= ?1",
            rows::RUN_STATE
        );
        let mut statement = connection.prepare(&sql)?;
        let mut found = statement.query([self.running_floor])?;
        while let Some(row) = found.next()? {
            match rows::readable("task_runs", row.get(0)?, rows::run_state(&row))? {
                Some(hot) => self.track(None, &hot),
                None => self.damaged.push(row.get(0)?),
            }
        }
        Ok(())
    }

    fn read_keys(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        // Runs are stored in order of creation, and their times nearly are as well.
        let since = self.clock.map(|clock| clock.minus(retention::KEY_TTL + OUT_OF_ORDER));
        let mut statement = connection
            .prepare("select id, created, tenant, substr(idempotency, 1, 16) from task_runs order by id desc")?;
        let mut found = statement.query(())?;
        while let Some(row) = found.next()? {
            let created = Timestamp::from_millis(row.get(1)?);
            if since.is_some_and(|since| created < since) {
                break;
            }
            if let Some(key) = row.get::<Option<[u8; 16]>>(3)? {
                let key = (rows::tenant_id(row.get(2)?), key);
                // Newest first: an older run with the same key has lost it.
                if !self.keys.contains_key(&key) {
                    self.remember_key(key, row.get(0)?, created);
                }
            }
        }
        Ok(())
    }

    pub(super) fn head(&self, tenant: TenantId) -> Option<LogHead> {
        self.heads.get(&tenant).copied()
    }

    /// Every tenant with the seq of its newest row.
    pub(super) fn heads(&self) -> impl Iterator<Item = (TenantId, i64)> + '_ {
        self.heads.iter().map(|(tenant, head)| (*tenant, head.seq))
    }

    pub(super) fn set_head(&mut self, tenant: TenantId, head: LogHead) {
        let before = self.heads.insert(tenant, head);
        self.undo.push(CacheUndo::Head(tenant, before));
    }

    /// Tracks a run's transition from one state to the next. `None` is before its creation.
    pub(super) fn track(&mut self, from: Option<&RunState>, to: &RunState) {
        self.follow(from, Some(to));
        self.undo.push(CacheUndo::Track(from.cloned(), Some(to.clone())));
    }

    fn follow(&mut self, from: Option<&RunState>, to: Option<&RunState>) {
        if let Some(row) = to.or(from).map(|hot| hot.row) {
            self.count(row, from.and_then(LiveRun::of).as_ref(), to);
        }
    }

    /// Counts a run as it is now instead of as it was.
    fn count(&mut self, row: i64, from: Option<&LiveRun>, to: Option<&RunState>) {
        let after = to.and_then(LiveRun::of);
        if let Some(live) = from {
            self.leave(row, live);
        }
        if let (Some(live), Some(hot)) = (&after, to) {
            self.enter(live, hot);
        }
        self.ledger.follow(from, after.as_ref());
        if let Some(counted) = &mut self.counted {
            match after {
                Some(live) => counted.insert(row, live),
                None => counted.remove(&row),
            };
        }
    }

    fn leave(&mut self, row: i64, live: &LiveRun) {
        let count = live.counter(&mut self.live);
        *count = count.saturating_sub(1);
        if let Some(deadline) = live.deadline {
            self.deadlines.remove(&(deadline, row));
        }
        if live.is_running {
            self.release(row);
        }
    }

    /// The run isn't claimed any more.
    fn release(&mut self, row: i64) {
        let Some((runtime, id)) = self.running.remove(&row) else { return };
        self.held.remove(&id);
        if let Some(rows) = self.by_runtime.get_mut(&runtime) {
            rows.remove(&row);
            if rows.is_empty() {
                self.by_runtime.remove(&runtime);
            }
        }
    }

    fn enter(&mut self, live: &LiveRun, hot: &RunState) {
        *live.counter(&mut self.live) += 1;
        if let Some(deadline) = live.deadline {
            self.deadlines.insert((deadline, hot.row));
        }
        if let Some(claim) = hot.state.claim() {
            self.running.insert(hot.row, (claim.runtime, hot.id));
            self.by_runtime.entry(claim.runtime).or_default().insert(hot.row);
            self.held.insert(hot.id, hot.clone());
        }
    }

    /// A run held by some runtime.
    pub(super) fn held(&self, run: RunId) -> Option<&RunState> {
        self.held.get(&run)
    }

    /// Live runs that couldn't be read during the rebuild.
    pub(super) fn take_damaged(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.damaged)
    }

    /// A run whose row can't be read any more belongs to no one.
    pub(super) fn forget_row(&mut self, row: i64) {
        if let Some(live) = self.counted.as_mut().and_then(|counted| counted.remove(&row)) {
            self.count(row, Some(&live), None);
        }
        self.deadlines.retain(|(_, of)| *of != row);
        self.release(row);
        self.undo.push(CacheUndo::ForgottenRow(row));
    }

    /// Live runs whose deadline has passed, in order of creation.
    pub(super) fn due(&self, now: Timestamp) -> Vec<i64> {
        let mut rows: Vec<_> = self.deadlines.range(..=(now, i64::MAX)).map(|(_, row)| *row).collect();
        rows.sort_unstable();
        rows
    }

    /// The runs that this runtime holds, oldest first.
    pub(super) fn claims(&self, runtime: RuntimeId) -> Vec<i64> {
        self.by_runtime.get(&runtime).map(|rows| rows.iter().copied().collect()).unwrap_or_default()
    }

    /// The channels over which runs are claimed now.
    pub(super) fn channels_held(&self) -> impl Iterator<Item = ChannelId> + '_ {
        self.held.values().filter_map(|hot| hot.channel)
    }

    /// Every running run, oldest first.
    pub(super) fn running(&self) -> impl DoubleEndedIterator<Item = i64> + '_ {
        self.running.keys().copied()
    }

    pub(super) const fn running_floor(&self) -> i64 {
        self.running_floor
    }

    pub(super) fn set_running_floor(&mut self, row: i64) {
        self.undo.push(CacheUndo::RunningFloor(self.running_floor));
        self.running_floor = row;
    }

    pub(super) fn is_subscribed(&self, run: RunId) -> bool {
        self.subscribed.contains(&run)
    }

    pub(super) fn subscribe(&mut self, run: RunId) {
        let new = self.subscribed.insert(run);
        self.undo.push(CacheUndo::Subscribed(run, !new));
    }

    pub(super) fn unsubscribe(&mut self, run: RunId) {
        let was = self.subscribed.remove(&run);
        self.undo.push(CacheUndo::Subscribed(run, was));
    }

    pub(super) fn live(&self, tenant: TenantId) -> LiveCounts {
        self.live.get(&tenant).copied().unwrap_or_default()
    }

    pub(super) fn run_of_key(&self, tenant: TenantId, key: [u8; 16]) -> Option<i64> {
        self.keys.get(&(tenant, key)).copied()
    }

    pub(super) fn set_key(&mut self, tenant: TenantId, key: [u8; 16], row: i64, created: Timestamp) {
        let before = self.keys.get(&(tenant, key)).copied();
        self.undo.push(CacheUndo::Key((tenant, key), before));
        self.remember_key((tenant, key), row, created);
    }

    /// The run of this key was removed.
    pub(super) fn forget_key(&mut self, tenant: TenantId, key: [u8; 16], row: i64, created: Timestamp) {
        let key = (tenant, key);
        let was_current = self.drop_key(key, row, created);
        self.undo.push(CacheUndo::ForgottenKey { key, row, created, was_current });
    }

    /// Returns whether the key was this run's.
    fn drop_key(&mut self, key: IdempotencyKey, row: i64, created: Timestamp) -> bool {
        self.key_ages.remove(&(created, row, key));
        let was_current = self.keys.get(&key) == Some(&row);
        if was_current {
            self.keys.remove(&key);
        }
        was_current
    }

    fn remember_key(&mut self, key: IdempotencyKey, row: i64, created: Timestamp) {
        self.keys.insert(key, row);
        self.key_ages.insert((created, row, key));
    }

    pub(super) const fn clock(&self) -> Option<Timestamp> {
        self.clock
    }

    pub(super) fn set_clock(&mut self, now: Timestamp) {
        self.undo.push(CacheUndo::Clock(self.clock.replace(now)));
    }

    pub(super) fn forget_old_keys(&mut self) {
        while let Some((created, row, key)) = self.key_ages.first().copied() {
            if !retention::is_key_over(created, self.clock) {
                break;
            }
            self.key_ages.pop_first();
            if self.keys.get(&key) == Some(&row) {
                self.keys.remove(&key);
            }
        }
    }

    /// Keeps the job's changes, as far as the transaction is kept.
    pub(super) fn keep(&mut self) {
        self.mark = self.undo.len();
        self.ledger.keep();
    }

    /// The transaction was committed.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
        self.mark = 0;
        self.ledger.commit();
    }

    /// The transaction was rolled back, with all jobs in it.
    pub(super) fn abandon(&mut self) {
        self.mark = 0;
        self.roll_back();
        self.ledger.abandon();
    }

    /// The job was rolled back: the memory follows the tables.
    pub(super) fn roll_back(&mut self) {
        while self.undo.len() > self.mark
            && let Some(undo) = self.undo.pop()
        {
            match undo {
                CacheUndo::Head(tenant, Some(head)) => {
                    self.heads.insert(tenant, head);
                }
                CacheUndo::Head(tenant, None) => {
                    self.heads.remove(&tenant);
                }
                CacheUndo::Track(from, to) => self.follow(to.as_ref(), from.as_ref()),
                CacheUndo::RunningFloor(row) => self.running_floor = row,
                CacheUndo::Clock(before) => self.clock = before,
                CacheUndo::Subscribed(run, true) => {
                    self.subscribed.insert(run);
                }
                CacheUndo::Subscribed(run, false) => {
                    self.subscribed.remove(&run);
                }
                CacheUndo::Key(key, Some(row)) => {
                    self.keys.insert(key, row);
                }
                CacheUndo::Key(key, None) => {
                    self.keys.remove(&key);
                }
                CacheUndo::ForgottenKey { key, row, created, was_current: true } => {
                    self.remember_key(key, row, created);
                }
                CacheUndo::ForgottenKey { was_current: false, .. } | CacheUndo::ForgottenRow(_) => {}
            }
        }
        self.ledger.roll_back();
    }
}

/// The clock for expiry.
pub(super) fn read_clock(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let sql = "select value from meta where key = 'clock'";
    connection.query_row(sql, (), |row| row.get(0).map(Timestamp::from_millis)).optional()
}

// === impl LiveRun ===

impl LiveRun {
    /// `None` once it has ended.
    fn of(hot: &RunState) -> Option<Self> {
        let is_running = match &hot.state.phase {
            RunPhase::Pending { .. } | RunPhase::Deferred { .. } => false,
            RunPhase::Running(_) => true,
            RunPhase::Ended { .. } => return None,
        };
        Some(Self {
            cell: UsageCell::of(hot),
            reserved: hot.reservation.held,
            deadline: next_deadline(&hot.state),
            is_running,
        })
    }

    fn counter<'a>(&self, live: &'a mut HashMap<TenantId, LiveCounts>) -> &'a mut u64 {
        let counts = live.entry(self.cell.tenant).or_default();
        if self.is_running { &mut counts.running } else { &mut counts.pending }
    }
}
