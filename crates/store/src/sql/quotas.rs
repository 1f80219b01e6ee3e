//! Quotas: set, check and charge; and the usage sums.

use std::collections::BTreeSet;

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{
    AgentId, Json, RunId, TenantId, Timestamp, UserId,
    rules::{
        quota::{
            ExceededLimit, QuotaAccount, QuotaBudget, QuotaLimits, QuotaLine, QuotaReservation, QuotaVerdict,
            ReservationRequest, Spend, UtcDay, check, left, report, reserve,
        },
        run::{FailureCode, RunCommand, WorkerRef},
    },
    wire::{run::SandboxLimit, usage::ReportedUsage},
};
use rusqlite::params;

use super::{
    SqlStore,
    journal::{LogStamp, TransitionWrites},
    rows::{self, IdBytes, LoadedRun, RunState},
    search,
    usage_ledger::{self, UsageCell, UsageSums},
    writer::WriteTransaction,
};
use crate::{
    Error, QuotaStore, Result, WriteContext, entry, outcome,
    record::{
        AgentRef,
        quota::{DailyUsage, QuotaRecord, QuotaTarget},
        user::UserRef,
    },
};

/// The mark of a tenant without ended runs moves too, once it lags this far behind its log.
const MARK_STEP: i64 = 10_000;

/// The columns that [`sums`] reads.
const SUMS: &str = "calls, failed, tokens, micro_usd, reported, estimated, unknown, duration_ms";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn set_quota(&mut self, context: &WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord> {
        let WriteContext { tenant, at, .. } = *context;
        if let Some(user) = target.user {
            self.present_user(tenant, &UserRef::Id(user))?;
        }
        if let Some(agent) = target.agent
            && self.account(tenant, &AgentRef::Id(agent))?.archived_at.is_some()
        {
            return Err(Error::NotFound);
        }
        let amount = |limit: Option<u64>| limit.map(u64::cast_signed);
        let [user, agent] = keys_of(target);
        self.connection
            .prepare_cached(
                "insert into quotas (tenant, user, agent, calls, tokens, micro_usd)
                 values (?1, ?2, ?3, ?4, ?5, ?6)
                 on conflict (tenant, user, agent) do update
                    set calls = excluded.calls, tokens = excluded.tokens, micro_usd = excluded.micro_usd",
            )?
            .execute(params![
                IdBytes(tenant.uuid()),
                user,
                agent,
                amount(limits.calls),
                amount(limits.tokens),
                amount(limits.micro_usd),
            ])?;
        self.log(tenant, context.stamp(), &entry::user::quota_changed(target, limits), None)?;
        self.cache.ledger.set_limits(tenant, target, Some(limits));
        Ok(QuotaRecord { target, limits, account: self.day_account(tenant, target, UtcDay::of(at))? })
    }

    fn remove_quota(&mut self, context: &WriteContext, target: QuotaTarget) -> Result<()> {
        let tenant = context.tenant;
        self.cache.ledger.limits(tenant, target).ok_or(Error::NotFound)?;
        let [user, agent] = keys_of(target);
        self.connection
            .prepare_cached("delete from quotas where tenant = ?1 and user = ?2 and agent = ?3")?
            .execute(params![IdBytes(tenant.uuid()), user, agent])?;
        self.log(tenant, context.stamp(), &entry::user::quota_removed(target), None)?;
        self.cache.ledger.set_limits(tenant, target, None);
        Ok(())
    }

    fn quotas(&mut self, tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>> {
        let quotas = self.cache.ledger.quotas(tenant).into_iter();
        let shown = quotas.map(|(target, limits)| {
            Ok(QuotaRecord { target, limits, account: self.day_account(tenant, target, UtcDay::of(at))? })
        });
        shown.collect()
    }

    /// The account of a day, from memory or computed.
    fn day_account(&mut self, tenant: TenantId, target: QuotaTarget, day: UtcDay) -> Result<QuotaAccount> {
        if let Some(account) = self.cache.ledger.account(tenant, target, day) {
            return Ok(account);
        }
        let written = written_spend(self.connection, tenant, target, day)?;
        Ok(self.cache.ledger.open(tenant, target, day, written))
    }

    /// The quotas that apply to a run that this user pays for with this agent, with their accounts of that day.
    fn quota_lines(
        &mut self,
        tenant: TenantId,
        user: Option<UserId>,
        agent: AgentId,
        day: UtcDay,
    ) -> Result<(Vec<QuotaTarget>, Vec<QuotaLine>)> {
        let (mut targets, mut lines) = (Vec::new(), Vec::new());
        if self.cache.ledger.has_quotas() {
            for target in QuotaTarget::covering(user, agent) {
                if let Some(limits) = self.cache.ledger.limits(tenant, target) {
                    targets.push(target);
                    lines.push(QuotaLine { limits, account: self.day_account(tenant, target, day)? });
                }
            }
        }
        Ok((targets, lines))
    }

    fn quota_lines_of(&mut self, hot: &RunState) -> Result<Vec<QuotaLine>> {
        self.quota_lines(hot.tenant, hot.payer, hot.agent, hot.reservation.day).map(|(_, lines)| lines)
    }

    /// What a new run reserves, if its quotas have room for it.
    pub(super) fn reserve(
        &mut self,
        context: &WriteContext,
        payer: Option<UserId>,
        agent: AgentId,
        request: ReservationRequest,
    ) -> Result<QuotaReservation> {
        let (targets, lines) = self.quota_lines(context.tenant, payer, agent, UtcDay::of(context.at))?;
        match reserve(&lines, request, context.at) {
            Ok(reservation) => Ok(reservation),
            Err(exceeded) => {
                let target = exceeded.line.map_or(QuotaTarget::default(), |line| targets[line]);
                Err(Error::QuotaExceeded { target, exceeded })
            }
        }
    }

    /// Whether a pending run may still be claimed. If not, it fails. One that was never claimed isn't counted.
    pub(super) fn has_room(&mut self, hot: &RunState, at: Timestamp) -> Result<bool> {
        match check(&self.quota_lines_of(hot)?) {
            Ok(()) => Ok(true),
            Err(exceeded) => {
                let refused = hot.state.epoch == 0;
                self.exceed(&RunState { refused, ..hot.clone() }, &exceeded, at)?;
                Ok(false)
            }
        }
    }

    /// Whether this worker may claim a pending run: it must enforce every limit the run asks for. If not, the run
    /// fails. One that was never claimed isn't counted.
    pub(super) fn keeps_limits(&mut self, run: &LoadedRun, enforces: &[SandboxLimit], at: Timestamp) -> Result<bool> {
        let Some(unmet) = run.record.spec.sandbox.and_then(|sandbox| sandbox.unmet(enforces)) else { return Ok(true) };
        let refused = run.hot.state.epoch == 0;
        let result = outcome::refused_for_limits(&unmet);
        self.halt(&RunState { refused, ..run.hot.clone() }, FailureCode::Refused, &result, at)?;
        Ok(false)
    }

    /// A running run's reservation after a usage report, and whether it may continue.
    pub(super) fn report_usage(&mut self, hot: &RunState, usage: &Json) -> Result<(QuotaReservation, QuotaVerdict)> {
        let lines = self.quota_lines_of(hot)?;
        Ok(report(&lines, hot.reservation, ReportedUsage::spend(Some(usage))))
    }

    /// The remaining budget of a run after this report, considering its own budget and its quotas.
    pub(super) fn left(&mut self, hot: &RunState, usage: Option<&Json>) -> Result<QuotaBudget> {
        Ok(left(&self.quota_lines_of(hot)?, hot.reservation, ReportedUsage::spend(usage)))
    }

    /// A quota ends the run.
    pub(super) fn exceed(&mut self, hot: &RunState, exceeded: &ExceededLimit, at: Timestamp) -> Result<RunState> {
        self.halt(hot, FailureCode::QuotaExceeded, &outcome::failed_by_quota(exceeded), at)
    }

    fn halt(&mut self, hot: &RunState, code: FailureCode, result: &Json, at: Timestamp) -> Result<RunState> {
        let written = TransitionWrites { result: Some(result), ..TransitionWrites::default() };
        self.step(hot, &RunCommand::Halt { code }, LogStamp { actor: WriteContext::SYSTEM, at }, written)
    }

    /// Counts a run that has ended. `usage` is the total of its last report, if it had one.
    pub(super) fn count_usage(&mut self, hot: &RunState, ended: Timestamp, usage: Option<&Json>) -> Result<()> {
        let stored = if usage.is_none() { self.reported(hot)? } else { None };
        self.cache.ledger.spend(hot, ended, usage.or(stored.as_ref()));
        Ok(())
    }

    /// The run's last reported usage.
    fn reported(&self, hot: &RunState) -> Result<Option<Json>> {
        if hot.reported { self.stored_usage(hot) } else { Ok(None) }
    }

    fn stored_usage(&self, hot: &RunState) -> Result<Option<Json>> {
        Ok(self
            .connection
            .prepare_cached("select usage from task_runs where id = ?1")?
            .query_row([hot.row], |row| rows::maybe_json(row, 0))?)
    }

    /// Moves the sums from memory to `usage_days`.
    pub(super) fn write_usage(&mut self) -> Result<()> {
        let unwritten: Vec<(UsageCell, UsageSums)> =
            self.cache.ledger.unwritten().iter().map(|(cell, sums)| (*cell, *sums)).collect();
        for (cell, sums) in &unwritten {
            self.add_to_day(cell, sums)?;
        }
        let spent: BTreeSet<TenantId> = unwritten.iter().map(|(cell, _)| cell.tenant).collect();
        let ledger = &self.cache.ledger;
        let lags = |tenant: TenantId, seq: i64| seq - ledger.written_upto(tenant) >= MARK_STEP;
        let heads = self.cache.heads().filter(|(tenant, seq)| lags(*tenant, *seq) || spent.contains(tenant));
        let upto: Vec<(TenantId, i64)> = heads.collect();
        if upto.is_empty() {
            return Ok(());
        }
        for (tenant, seq) in &upto {
            self.connection
                .prepare_cached("update tenants set usage_upto = ?2 where id = ?1")?
                .execute(params![IdBytes(tenant.uuid()), seq])?;
        }
        self.cache.ledger.set_written(&upto);
        Ok(())
    }

    /// Records the final usage of a run, if its last worker reports it after someone else ended the run. The refusal
    /// stands.
    pub(super) fn keep_late_usage(
        &mut self,
        hot: &RunState,
        by: WorkerRef,
        usage: &Json,
        stamp: LogStamp<'_>,
    ) -> Result<()> {
        if hot.runtime != Some(by.runtime) || hot.refused {
            return Ok(());
        }
        let known = self.stored_usage(hot)?;
        let (before, after) = (ReportedUsage::of(known.as_ref()), ReportedUsage::of(Some(usage)));
        if !after.grew_from(before) {
            return Ok(());
        }
        // The sums contain the run's earlier total, and a start only adds runs that ended after their mark.
        self.write_usage()?;
        self.change_day(&UsageCell::of(hot), |sums| sums.with(before, after))?;
        self.cache.ledger.forget_accounts();
        self.connection
            .prepare_cached("update task_runs set usage = ?2, micro_usd = ?3 where id = ?1")?
            .execute(params![hot.row, usage.get(), after.micro_usd.map(search::stored_cost)])?;
        self.log(hot.tenant, stamp, &entry::task_usage(hot.id, usage), None)?;
        Ok(())
    }

    fn add_to_day(&self, cell: &UsageCell, more: &UsageSums) -> Result<()> {
        self.change_day(cell, |sums| sums.plus(*more))
    }

    fn change_day(&self, cell: &UsageCell, change: impl FnOnce(UsageSums) -> UsageSums) -> Result<()> {
        let [user, agent] = keys_of(QuotaTarget { user: cell.user, agent: Some(cell.agent) });
        let tenant = || IdBytes(cell.tenant.uuid());
        let before = self
            .connection
            .prepare_cached(&format!(
                "select {SUMS} from usage_days where tenant = ?1 and day = ?2 and user = ?3 and agent = ?4"
            ))?
            .query_row(params![tenant(), cell.day.0, user, agent], |row| sums(row, 0))
            .optional()?;
        let sums = change(before.unwrap_or_default());
        self.connection
            .prepare_cached(&format!(
                "insert into usage_days (tenant, day, user, agent, {SUMS})
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
                 on conflict (tenant, day, user, agent) do update set calls = excluded.calls, failed = excluded.failed,
                    tokens = excluded.tokens, micro_usd = excluded.micro_usd, reported = excluded.reported,
                    estimated = excluded.estimated, unknown = excluded.unknown, duration_ms = excluded.duration_ms"
            ))?
            .execute(params![
                tenant(),
                cell.day.0,
                user,
                agent,
                sums.calls.cast_signed(),
                sums.failed.cast_signed(),
                sums.tokens.cast_signed(),
                sums.micro_usd.cast_signed(),
                sums.reported.cast_signed(),
                sums.estimated.cast_signed(),
                sums.unknown.cast_signed(),
                sums.duration_ms.cast_signed(),
            ])?;
        Ok(())
    }
}

/// What `usage_days` has for a target.
pub(super) fn written_spend(
    connection: &Connection,
    tenant: TenantId,
    target: QuotaTarget,
    day: UtcDay,
) -> Result<Spend> {
    let covered = usage_of(connection, tenant, day, day)?.into_iter().filter(|row| target.covers(row.user, row.agent));
    let spend = |DailyUsage { calls, tokens, micro_usd, .. }: DailyUsage| Spend { calls, tokens, micro_usd };
    Ok(covered.map(spend).fold(Spend::default(), Spend::plus))
}

/// The content of `usage_days`.
fn usage_of(connection: &Connection, tenant: TenantId, first: UtcDay, last: UtcDay) -> Result<Vec<DailyUsage>> {
    Ok(connection
        .prepare_cached(&format!(
            "select day, user, agent, {SUMS} from usage_days where tenant = ?1 and day between ?2 and ?3
             order by day, user, agent"
        ))?
        .query_map(params![IdBytes(tenant.uuid()), first.0, last.0], |row| {
            let UsageSums { calls, failed, tokens, micro_usd, reported, estimated, unknown, duration_ms } =
                sums(row, 3)?;
            Ok(DailyUsage {
                day: UtcDay(row.get(0)?),
                user: usage_ledger::maybe_id(row, 1, rows::user_id)?,
                agent: rows::agent_id(row.get(2)?),
                calls,
                failed,
                tokens,
                micro_usd,
                reported,
                estimated,
                unknown,
                duration_ms,
            })
        })?
        .collect::<rusqlite::Result<_>>()?)
}

/// Reads [`SUMS`].
fn sums(row: &Row<'_>, first: usize) -> rusqlite::Result<UsageSums> {
    let number = |offset| row.get::<i64>(first + offset).map(i64::cast_unsigned);
    Ok(UsageSums {
        calls: number(0)?,
        failed: number(1)?,
        tokens: number(2)?,
        micro_usd: number(3)?,
        reported: number(4)?,
        estimated: number(5)?,
        unknown: number(6)?,
        duration_ms: number(7)?,
    })
}

/// User and agent as key columns, which can't be null.
fn keys_of(QuotaTarget { user, agent }: QuotaTarget) -> [Vec<u8>; 2] {
    let bytes = |id: Option<uuid::Uuid>| id.map(|id| id.as_bytes().to_vec()).unwrap_or_default();
    [bytes(user.map(UserId::uuid)), bytes(agent.map(AgentId::uuid))]
}

// === impl SqlStore ===

#[async_trait]
impl QuotaStore for SqlStore {
    async fn set_quota(&self, context: WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord> {
        self.write(move |transaction| transaction.set_quota(&context, target, limits)).await
    }

    async fn remove_quota(&self, context: WriteContext, target: QuotaTarget) -> Result<()> {
        self.write(move |transaction| transaction.remove_quota(&context, target)).await
    }

    async fn left(&self, tenant: TenantId, run: RunId) -> Result<QuotaBudget> {
        // The ledger is the writer's memory.
        self.write(move |transaction| {
            let hot = transaction.run_state(run)?;
            if hot.tenant != tenant {
                return Err(Error::NotFound);
            }
            if hot.state.status().is_terminal() {
                return Ok(QuotaBudget::default());
            }
            let usage = transaction.reported(&hot)?;
            transaction.left(&hot, usage.as_ref())
        })
        .await
    }

    async fn quotas(&self, tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>> {
        self.write(move |transaction| transaction.quotas(tenant, at)).await
    }

    async fn usage(&self, tenant: TenantId, first: UtcDay, last: UtcDay) -> Result<Vec<DailyUsage>> {
        self.write(|transaction| transaction.write_usage()).await?;
        self.read(move |connection| usage_of(connection, tenant, first, last)).await
    }
}
