//! Reservations of live runs and usage of ended runs, in the writer's memory: a run without limits costs no write for
//! it.
//!
//! Sums go to `usage_days` in bulk, with a mark of how far into the log they reach. Runs that ended after the mark are
//! added again at start.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::connection::{Connection, Row};
use attache_protocol::{
    AgentId, Json, TenantId, Timestamp, UserId,
    rules::{
        quota::{QuotaAccount, QuotaLimits, Spend, UtcDay},
        run::RunStatus,
    },
    wire::usage::{CostSource, ReportedUsage},
};

use super::{
    cache::{LiveRun, MemoryChanges},
    log_keys::LogKeys,
    rows::{self, RunState},
};
use crate::record::quota::QuotaTarget;

/// How many accounts are remembered.
const MAX_ACCOUNTS: usize = 10_000;

/// One user with one agent on one day: the unit of every sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UsageCell {
    pub(super) tenant: TenantId,
    pub(super) day: UtcDay,
    pub(super) user: Option<UserId>,
    pub(super) agent: AgentId,
}

/// Usage of ended runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct UsageSums {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) tokens: u64,
    pub(super) micro_usd: u64,
    pub(super) reported: u64,
    pub(super) estimated: u64,
    pub(super) unknown: u64,
    pub(super) duration_ms: u64,
}

/// Reservations of live runs. Exact, so that whatever was added can be subtracted again.
#[derive(Debug, Clone, Copy, Default)]
struct ReservedUsage {
    calls: u64,
    tokens: u128,
    micro_usd: u128,
}

#[derive(Debug, Clone, Copy)]
struct QuotaBalance {
    spent: Spend,
    held: ReservedUsage,
}

/// Every quota of every tenant.
pub(super) type Quotas = BTreeMap<(TenantId, QuotaTarget), QuotaLimits>;

#[derive(Debug, Default)]
pub(super) struct UsageLedger {
    held: HashMap<UsageCell, ReservedUsage>,
    /// Sums that aren't in `usage_days` yet.
    unwritten: BTreeMap<UsageCell, UsageSums>,
    /// How far into each tenant's log `usage_days` reaches.
    written_upto: HashMap<TenantId, i64>,
    quotas: Quotas,
    /// Accounts of targets with a quota. They can be recomputed at any time.
    accounts: HashMap<(TenantId, QuotaTarget, UtcDay), QuotaBalance>,
    undo: Vec<LedgerUndo>,
    mark: usize,
}

#[derive(Debug)]
enum LedgerUndo {
    Spent {
        row: i64,
        cell: UsageCell,
        before: Option<UsageSums>,
    },
    Written {
        unwritten: BTreeMap<UsageCell, UsageSums>,
        upto: Vec<(TenantId, i64)>,
    },
    Quota(TenantId, QuotaTarget, Option<QuotaLimits>),
    /// `usage_days` was corrected.
    Corrected,
}

// === impl UsageLedger ===

impl UsageLedger {
    /// Reads the quotas and the runs that ended after the marks. Reservations come with the live runs.
    pub(super) fn rebuild(connection: &Connection) -> rusqlite::Result<Self> {
        let mut ledger = Self { quotas: read_quotas(connection)?, ..Self::default() };
        let mut tenants = connection.prepare("select id, no, usage_upto from tenants")?;
        let mut found = tenants.query(())?;
        while let Some(row) = found.next()? {
            let (keys, upto) = (LogKeys::of(row.get(1)?), row.get(2)?);
            ledger.written_upto.insert(rows::tenant_id(row.get(0)?), upto);
            ledger.read_ended(connection, keys, upto)?;
        }
        ledger.undo.clear();
        Ok(ledger)
    }

    fn read_ended(&mut self, connection: &Connection, keys: LogKeys, upto: i64) -> rusqlite::Result<()> {
        let sql = format!(
            "select {}, ended, usage from log cross join task_runs on uid = run
             where key > ?1 and key <= ?2 and type in ('task.completed', 'task.failed', 'task.cancelled')",
            rows::RUN_STATE
        );
        let [_, last] = keys.all();
        let mut statement = connection.prepare(&sql)?;
        let mut found = statement.query([keys.at(upto), last])?;
        while let Some(row) = found.next()? {
            let read =
                rows::run_state(&row).and_then(|hot| Ok((hot, rows::time(&row, 10)?, rows::maybe_json(&row, 11)?)));
            if let Some((hot, ended, usage)) = rows::readable("task_runs", row.get(0)?, read)? {
                self.spend(&hot, ended, usage.as_ref());
            }
        }
        Ok(())
    }

    /// A run moved from one state to the next, and its reservation with it.
    pub(super) fn follow(&mut self, from: Option<&LiveRun>, to: Option<&LiveRun>) {
        let holding = |live: &LiveRun| (live.cell, live.reserved);
        let (before, after) = (from.map(holding), to.map(holding));
        if before == after {
            return;
        }
        if let Some((cell, held)) = before {
            if let Some(sum) = self.held.get_mut(&cell) {
                sum.subtract(held);
                if sum.calls == 0 {
                    self.held.remove(&cell);
                }
            }
            self.adjust(cell, |account| account.held.subtract(held));
        }
        if let Some((cell, held)) = after {
            self.held.entry(cell).or_default().add(held);
            self.adjust(cell, |account| account.held.add(held));
        }
    }

    /// The total usage of an ended run.
    pub(super) fn spend(&mut self, hot: &RunState, ended: Timestamp, usage: Option<&Json>) {
        if hot.refused {
            return;
        }
        let cell = UsageCell::of(hot);
        let used = UsageSums::of(hot.state.status(), usage, ended.since(hot.created));
        let before = self.unwritten.get(&cell).copied();
        self.unwritten.insert(cell, before.unwrap_or_default().plus(used));
        self.undo.push(LedgerUndo::Spent { row: hot.row, cell, before });
        self.adjust(cell, |account| account.spent = account.spent.plus(used.spend()));
    }

    fn adjust(&mut self, cell: UsageCell, change: impl Fn(&mut QuotaBalance)) {
        if self.accounts.is_empty() {
            return;
        }
        for target in QuotaTarget::covering(cell.user, cell.agent) {
            if let Some(account) = self.accounts.get_mut(&(cell.tenant, target, cell.day)) {
                change(account);
            }
        }
    }

    pub(super) fn has_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    pub(super) fn limits(&self, tenant: TenantId, target: QuotaTarget) -> Option<QuotaLimits> {
        self.quotas.get(&(tenant, target)).copied()
    }

    /// Every quota of a tenant, by target.
    pub(super) fn quotas(&self, tenant: TenantId) -> Vec<(QuotaTarget, QuotaLimits)> {
        let first = (tenant, QuotaTarget::default());
        let quotas = self.quotas.range(first..).take_while(|((owner, _), _)| *owner == tenant);
        quotas.map(|((_, target), limits)| (*target, *limits)).collect()
    }

    pub(super) fn set_limits(&mut self, tenant: TenantId, target: QuotaTarget, limits: Option<QuotaLimits>) {
        let before = match limits {
            Some(limits) => self.quotas.insert((tenant, target), limits),
            None => self.quotas.remove(&(tenant, target)),
        };
        self.undo.push(LedgerUndo::Quota(tenant, target, before));
    }

    pub(super) fn account(&self, tenant: TenantId, target: QuotaTarget, day: UtcDay) -> Option<QuotaAccount> {
        self.accounts.get(&(tenant, target, day)).map(|balance| balance.on(day))
    }

    /// Starts tracking an account for which `usage_days` has `written`.
    pub(super) fn open(&mut self, tenant: TenantId, target: QuotaTarget, day: UtcDay, written: Spend) -> QuotaAccount {
        let within =
            |cell: &UsageCell| cell.tenant == tenant && cell.day == day && target.covers(cell.user, cell.agent);
        let unwritten = self.unwritten.iter().filter(|(cell, _)| within(cell)).map(|(_, sums)| sums.spend());
        let mut held = ReservedUsage::default();
        for (_, part) in self.held.iter().filter(|(cell, _)| within(cell)) {
            held.join(*part);
        }
        let balance = QuotaBalance { spent: unwritten.fold(written, Spend::plus), held };
        if self.accounts.len() >= MAX_ACCOUNTS {
            self.accounts.clear();
        }
        self.accounts.insert((tenant, target, day), balance);
        balance.on(day)
    }

    pub(super) const fn unwritten(&self) -> &BTreeMap<UsageCell, UsageSums> {
        &self.unwritten
    }

    pub(super) fn written_upto(&self, tenant: TenantId) -> i64 {
        self.written_upto.get(&tenant).copied().unwrap_or(0)
    }

    /// Everything is in `usage_days` now, up to these positions in the logs.
    pub(super) fn set_written(&mut self, upto: &[(TenantId, i64)]) {
        let before = upto.iter().map(|(tenant, _)| (*tenant, self.written_upto(*tenant))).collect();
        self.written_upto.extend(upto.iter().copied());
        self.undo.push(LedgerUndo::Written { unwritten: std::mem::take(&mut self.unwritten), upto: before });
    }

    /// `usage_days` was corrected. Accounts are recomputed from there.
    pub(super) fn forget_accounts(&mut self) {
        self.accounts.clear();
        self.undo.push(LedgerUndo::Corrected);
    }

    /// What the open transaction changed here.
    pub(super) fn note_changes(&self, changes: &mut MemoryChanges) {
        for undo in &self.undo {
            match undo {
                LedgerUndo::Spent { row, .. } => changes.ended.push(*row),
                LedgerUndo::Written { upto, .. } => {
                    changes.usage_written(upto.iter().map(|(tenant, _)| (*tenant, self.written_upto(*tenant))));
                }
                LedgerUndo::Quota(..) => changes.quotas = true,
                LedgerUndo::Corrected => changes.usage_corrected = true,
            }
        }
    }

    /// Follows what another writer did, except for the runs that ended since.
    pub(super) fn catch_up(&mut self, changes: &MemoryChanges, quotas: Option<Quotas>) {
        if let Some(quotas) = quotas {
            self.quotas = quotas;
        }
        if let Some(written) = &changes.written {
            self.unwritten.clear();
            self.written_upto.extend(written);
        }
        if changes.written.is_some() || changes.usage_corrected {
            self.accounts.clear();
        }
    }

    /// What differs from a ledger that was read from the tables.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn difference(&self, fresh: &mut Self, connection: &Connection) -> crate::Result<Option<String>> {
        use super::{cache::comparison::sorted, quotas};
        for ((tenant, target, day), balance) in &self.accounts {
            let written = quotas::written_spend(connection, *tenant, *target, *day)?;
            let (ours, theirs) = (balance.on(*day), fresh.open(*tenant, *target, *day, written));
            if ours != theirs {
                return Ok(Some(format!("account of {target:?}: {ours:?}\nin the tables: {theirs:?}")));
            }
        }
        let contents = |ledger: &Self| {
            [
                sorted("reserved", &ledger.held),
                sorted("unwritten", &ledger.unwritten),
                sorted("written up to", ledger.written_upto.iter().filter(|(_, upto)| **upto > 0)),
                sorted("quotas", &ledger.quotas),
            ]
        };
        let differs = contents(self).into_iter().zip(contents(fresh)).find(|(ours, theirs)| ours != theirs);
        Ok(differs.map(|(ours, theirs)| format!("remembered: {ours}\nin the tables: {theirs}")))
    }

    pub(super) const fn keep(&mut self) {
        self.mark = self.undo.len();
    }

    pub(super) fn commit(&mut self) {
        self.undo.clear();
        self.mark = 0;
    }

    pub(super) fn abandon(&mut self) {
        self.mark = 0;
        self.roll_back();
    }

    pub(super) fn roll_back(&mut self) {
        if self.undo.len() > self.mark {
            // Recomputed, because spending saturates at the maximum, so a change can't always be subtracted.
            self.accounts.clear();
        }
        while self.undo.len() > self.mark
            && let Some(undo) = self.undo.pop()
        {
            match undo {
                LedgerUndo::Spent { cell, before: Some(sums), .. } => {
                    self.unwritten.insert(cell, sums);
                }
                LedgerUndo::Spent { cell, before: None, .. } => {
                    self.unwritten.remove(&cell);
                }
                LedgerUndo::Written { unwritten, upto } => {
                    self.unwritten = unwritten;
                    self.written_upto.extend(upto);
                }
                LedgerUndo::Quota(tenant, target, Some(limits)) => {
                    self.quotas.insert((tenant, target), limits);
                }
                LedgerUndo::Quota(tenant, target, None) => {
                    self.quotas.remove(&(tenant, target));
                }
                LedgerUndo::Corrected => {}
            }
        }
    }
}

pub(super) fn read_quotas(connection: &Connection) -> rusqlite::Result<Quotas> {
    let mut quotas = Quotas::new();
    let mut statement = connection.prepare("select tenant, user, agent, calls, tokens, micro_usd from quotas")?;
    let mut found = statement.query(())?;
    while let Some(row) = found.next()? {
        let target = QuotaTarget { user: maybe_id(&row, 1, rows::user_id)?, agent: maybe_id(&row, 2, rows::agent_id)? };
        let amount = |column| Ok::<_, rusqlite::Error>(row.get::<Option<i64>>(column)?.map(i64::cast_unsigned));
        let limits = QuotaLimits { calls: amount(3)?, tokens: amount(4)?, micro_usd: amount(5)? };
        quotas.insert((rows::tenant_id(row.get(0)?), target), limits);
    }
    Ok(quotas)
}

/// An id that is an empty blob if absent.
pub(super) fn maybe_id<T>(row: &Row<'_>, column: usize, id: fn([u8; 16]) -> T) -> rusqlite::Result<Option<T>> {
    match row.get::<Vec<u8>>(column)?.as_slice() {
        [] => Ok(None),
        bytes => bytes.try_into().map(|bytes| Some(id(bytes))).map_err(|_| rows::corrupt(column, "not an id")),
    }
}

// === impl UsageCell ===

impl UsageCell {
    pub(super) const fn of(hot: &RunState) -> Self {
        Self { tenant: hot.tenant, day: hot.reservation.day, user: hot.payer, agent: hot.agent }
    }
}

// === impl ReservedUsage ===

impl ReservedUsage {
    fn add(&mut self, held: Spend) {
        self.join(Self::from(held));
    }

    fn join(&mut self, more: Self) {
        self.calls += more.calls;
        self.tokens += more.tokens;
        self.micro_usd += more.micro_usd;
    }

    /// Subtracts what was added before.
    fn subtract(&mut self, held: Spend) {
        let less = Self::from(held);
        self.calls = self.calls.saturating_sub(less.calls);
        self.tokens = self.tokens.saturating_sub(less.tokens);
        self.micro_usd = self.micro_usd.saturating_sub(less.micro_usd);
    }
}

impl From<Spend> for ReservedUsage {
    fn from(Spend { calls, tokens, micro_usd }: Spend) -> Self {
        Self { calls, tokens: tokens.into(), micro_usd: micro_usd.into() }
    }
}

// === impl QuotaBalance ===

impl QuotaBalance {
    fn on(self, day: UtcDay) -> QuotaAccount {
        let most = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        let ReservedUsage { calls, tokens, micro_usd } = self.held;
        QuotaAccount { day, spent: self.spent, held: Spend { calls, tokens: most(tokens), micro_usd: most(micro_usd) } }
    }
}

// === impl UsageSums ===

impl UsageSums {
    /// The sums of one run.
    fn of(status: RunStatus, usage: Option<&Json>, took: Duration) -> Self {
        let used = ReportedUsage::of(usage);
        let one_if = |is| if is { 1 } else { 0 };
        Self {
            calls: 1,
            failed: one_if(status != RunStatus::Completed),
            tokens: used.tokens.unwrap_or(0),
            micro_usd: used.micro_usd.unwrap_or(0),
            reported: one_if(used.source == CostSource::Reported),
            estimated: one_if(used.source == CostSource::Estimated),
            unknown: one_if(used.source == CostSource::Unknown),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The same calls, one of which used more than previously known.
    #[must_use]
    pub(super) fn with(mut self, before: ReportedUsage, after: ReportedUsage) -> Self {
        let more = |after: Option<u64>, before: Option<u64>| after.unwrap_or(0).saturating_sub(before.unwrap_or(0));
        self.tokens = self.tokens.saturating_add(more(after.tokens, before.tokens));
        self.micro_usd = self.micro_usd.saturating_add(more(after.micro_usd, before.micro_usd));
        let calls = self.calls_of(before.source);
        *calls = calls.saturating_sub(1);
        *self.calls_of(after.source) += 1;
        self
    }

    const fn calls_of(&mut self, source: CostSource) -> &mut u64 {
        match source {
            CostSource::Reported => &mut self.reported,
            CostSource::Estimated => &mut self.estimated,
            CostSource::Unknown => &mut self.unknown,
        }
    }

    #[must_use]
    pub(super) const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            failed: self.failed.saturating_add(other.failed),
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
            reported: self.reported.saturating_add(other.reported),
            estimated: self.estimated.saturating_add(other.estimated),
            unknown: self.unknown.saturating_add(other.unknown),
            duration_ms: self.duration_ms.saturating_add(other.duration_ms),
        }
    }

    pub(super) const fn spend(&self) -> Spend {
        Spend { calls: self.calls, tokens: self.tokens, micro_usd: self.micro_usd }
    }
}
