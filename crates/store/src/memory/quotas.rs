//! Quotas and usage. Accounts are computed from the runs whenever they are read.

use std::collections::BTreeMap;

use async_trait::async_trait;
use attache_protocol::{
    AgentId, Json, RunId, TenantId, Timestamp, UserId,
    rules::{
        quota::{
            ExceededLimit, QuotaAccount, QuotaBudget, QuotaLimits, QuotaLine, QuotaReservation, QuotaVerdict,
            ReservationRequest, UtcDay, check, left, report, reserve,
        },
        run::{FailureCode, RunCommand, RunRefusal, RunStatus, RunTransition, WorkerRef},
    },
    wire::{
        run::SandboxLimit,
        usage::{CostSource, ReportedUsage},
    },
};

use super::{
    MemoryStore,
    state::{ModelRun, ModelState},
};
use crate::{
    Error, QuotaStore, Result, WriteContext, entry, outcome,
    record::{
        AgentRef,
        quota::{DailyUsage, QuotaRecord, QuotaTarget},
    },
};

// === impl ModelState ===

impl ModelState {
    fn set_quota(&mut self, context: &WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord> {
        let WriteContext { tenant, at, .. } = *context;
        self.known_tenant(tenant)?;
        if let Some(user) = target.user {
            self.present_user(tenant, user)?;
        }
        if let Some(agent) = target.agent {
            self.living_agent(tenant, &AgentRef::Id(agent)).map_err(|_| Error::NotFound)?;
        }
        self.quotas.insert((tenant, target), limits);
        self.append(tenant, at, &context.actor, entry::user::quota_changed(target, limits));
        Ok(QuotaRecord { target, limits, account: self.spent(tenant, target, UtcDay::of(at)) })
    }

    fn remove_quota(&mut self, context: &WriteContext, target: QuotaTarget) -> Result<()> {
        self.quotas.remove(&(context.tenant, target)).ok_or(Error::NotFound)?;
        self.append(context.tenant, context.at, &context.actor, entry::user::quota_removed(target));
        Ok(())
    }

    fn quotas(&self, tenant: TenantId, at: Timestamp) -> Vec<QuotaRecord> {
        let quotas = self.quotas.iter().filter(|((owner, _), _)| *owner == tenant);
        let shown = quotas.map(|((_, target), limits)| QuotaRecord {
            target: *target,
            limits: *limits,
            account: self.spent(tenant, *target, UtcDay::of(at)),
        });
        shown.collect()
    }

    /// The account of a day: usage of its runs, plus what live ones reserve.
    fn spent(&self, tenant: TenantId, target: QuotaTarget, day: UtcDay) -> QuotaAccount {
        let mut account = QuotaAccount::new(day);
        for ModelRun { record, reservation, refused, .. } in self.runs.iter().chain(&self.removed_runs) {
            if record.tenant != tenant || reservation.day != day || !target.covers(record.payer, record.agent) {
                continue;
            }
            if !record.state.status().is_terminal() {
                account.held = account.held.plus(reservation.held);
            } else if !refused {
                account.spent = account.spent.plus(ReportedUsage::spend(record.usage.as_ref()));
            }
        }
        account
    }

    /// The quotas that apply to a run that this user pays for with this agent, with their accounts of that day.
    fn quota_lines(
        &self,
        tenant: TenantId,
        user: Option<UserId>,
        agent: AgentId,
        day: UtcDay,
    ) -> (Vec<QuotaTarget>, Vec<QuotaLine>) {
        let limited = QuotaTarget::covering(user, agent).filter_map(|target| {
            let limits = *self.quotas.get(&(tenant, target))?;
            Some((target, QuotaLine { limits, account: self.spent(tenant, target, day) }))
        });
        limited.unzip()
    }

    fn quota_lines_of(&self, place: usize) -> Vec<QuotaLine> {
        let ModelRun { record, reservation, .. } = &self.runs[place];
        self.quota_lines(record.tenant, record.payer, record.agent, reservation.day).1
    }

    /// What a new run reserves, if its quotas have room for it.
    pub(super) fn reserve(
        &self,
        context: &WriteContext,
        payer: Option<UserId>,
        agent: AgentId,
        request: ReservationRequest,
    ) -> Result<QuotaReservation> {
        let (targets, lines) = self.quota_lines(context.tenant, payer, agent, UtcDay::of(context.at));
        match reserve(&lines, request, context.at) {
            Ok(reservation) => Ok(reservation),
            Err(exceeded) => {
                let target = exceeded.line.map_or(QuotaTarget::default(), |line| targets[line]);
                Err(Error::QuotaExceeded { target, exceeded })
            }
        }
    }

    /// Whether a pending run may still be claimed. If not, it fails. One that was never claimed isn't counted.
    pub(super) fn has_room(&mut self, place: usize, at: Timestamp) -> bool {
        match check(&self.quota_lines_of(place)) {
            Ok(()) => true,
            Err(exceeded) => {
                self.runs[place].refused = self.runs[place].record.state.epoch == 0;
                self.exceed(place, &exceeded, at);
                false
            }
        }
    }

    /// Whether this worker may claim a pending run: it must enforce every limit the run asks for. If not, the run
    /// fails. One that was never claimed isn't counted.
    pub(super) fn keeps_limits(&mut self, place: usize, enforces: &[SandboxLimit], at: Timestamp) -> bool {
        let Some(unmet) = self.runs[place].record.spec.sandbox.and_then(|sandbox| sandbox.unmet(enforces)) else {
            return true;
        };
        self.runs[place].refused = self.runs[place].record.state.epoch == 0;
        self.halt(place, FailureCode::Refused, outcome::refused_for_limits(&unmet), at);
        false
    }

    /// Records a running run's new total, and stops the run if there is no room for it.
    pub(super) fn report_usage(&mut self, place: usize, usage: Json, at: Timestamp) {
        let used = ReportedUsage::spend(Some(&usage));
        let (reservation, verdict) = report(&self.quota_lines_of(place), self.runs[place].reservation, used);
        let run = &mut self.runs[place];
        run.record.usage = Some(usage);
        run.reservation = reservation;
        if let QuotaVerdict::Stop(exceeded) = verdict {
            self.exceed(place, &exceeded, at);
        }
    }

    /// Records the final usage of a run, if its last worker reports it after someone else ended the run.
    pub(super) fn or_late_usage(
        &mut self,
        judged: Result<RunTransition>,
        place: usize,
        by: WorkerRef,
        usage: Option<&Json>,
        at: Timestamp,
    ) -> Result<RunTransition> {
        let ModelRun { record, refused, .. } = &mut self.runs[place];
        if let (Err(Error::Refused { refusal: RunRefusal::Ended, .. }), Some(usage)) = (&judged, usage)
            && record.runtime == Some(by.runtime)
            && !*refused
            && ReportedUsage::of(Some(usage)).grew_from(ReportedUsage::of(record.usage.as_ref()))
        {
            record.usage = Some(usage.clone());
            let (tenant, run) = (record.tenant, record.id);
            self.append(tenant, at, &entry::runtime_actor(by.runtime), entry::task_usage(run, usage));
        }
        judged
    }

    /// The remaining budget of a run, considering its own budget and its quotas.
    pub(super) fn left(&self, place: usize) -> QuotaBudget {
        let used = ReportedUsage::spend(self.runs[place].record.usage.as_ref());
        left(&self.quota_lines_of(place), self.runs[place].reservation, used)
    }

    /// A quota ends the run.
    fn exceed(&mut self, place: usize, exceeded: &ExceededLimit, at: Timestamp) {
        self.halt(place, FailureCode::QuotaExceeded, outcome::failed_by_quota(exceeded), at);
    }

    fn halt(&mut self, place: usize, code: FailureCode, result: Json, at: Timestamp) {
        let transition = self.judge(place, &RunCommand::Halt { code }, at).expect("a live run can be halted");
        let worker = self.told_to_stop(place);
        self.runs[place].record.result = Some(result);
        let row = entry::task_failed(code);
        self.settle(place, transition.state, row, WriteContext::SYSTEM, at);
        self.tell_to_stop(worker, place);
    }

    fn usage(&self, tenant: TenantId, first: UtcDay, last: UtcDay) -> Vec<DailyUsage> {
        let mut rows: BTreeMap<(UtcDay, Option<UserId>, AgentId), DailyUsage> = BTreeMap::new();
        for ModelRun { record, reservation, refused, .. } in self.runs.iter().chain(&self.removed_runs) {
            let day = reservation.day;
            let Some(ended_at) = record.ended_at else { continue };
            if record.tenant != tenant || *refused || day < first || day > last {
                continue;
            }
            let (user, agent) = (record.payer, record.agent);
            let row = rows.entry((day, user, agent)).or_insert(DailyUsage {
                day,
                user,
                agent,
                calls: 0,
                failed: 0,
                tokens: 0,
                micro_usd: 0,
                reported: 0,
                estimated: 0,
                unknown: 0,
                duration_ms: 0,
            });
            let used = ReportedUsage::of(record.usage.as_ref());
            row.calls += 1;
            row.failed += u64::from(record.state.status() != RunStatus::Completed);
            row.tokens = row.tokens.saturating_add(used.tokens.unwrap_or(0));
            row.micro_usd = row.micro_usd.saturating_add(used.micro_usd.unwrap_or(0));
            *match used.source {
                CostSource::Reported => &mut row.reported,
                CostSource::Estimated => &mut row.estimated,
                CostSource::Unknown => &mut row.unknown,
            } += 1;
            let took = ended_at.since(record.created_at).as_millis();
            row.duration_ms = row.duration_ms.saturating_add(u64::try_from(took).unwrap_or(u64::MAX));
        }
        rows.into_values().collect()
    }
}

// === impl MemoryStore ===

#[async_trait]
impl QuotaStore for MemoryStore {
    async fn set_quota(&self, context: WriteContext, target: QuotaTarget, limits: QuotaLimits) -> Result<QuotaRecord> {
        self.write(|state| state.set_quota(&context, target, limits))
    }

    async fn remove_quota(&self, context: WriteContext, target: QuotaTarget) -> Result<()> {
        self.write(|state| state.remove_quota(&context, target))
    }

    async fn quotas(&self, tenant: TenantId, at: Timestamp) -> Result<Vec<QuotaRecord>> {
        self.read(|state| Ok(state.quotas(tenant, at)))
    }

    async fn left(&self, tenant: TenantId, run: RunId) -> Result<QuotaBudget> {
        self.read(|state| {
            let place = state.place(tenant, run)?;
            let ended = state.runs[place].record.state.status().is_terminal();
            Ok(if ended { QuotaBudget::default() } else { state.left(place) })
        })
    }

    async fn usage(&self, tenant: TenantId, first: UtcDay, last: UtcDay) -> Result<Vec<DailyUsage>> {
        self.read(|state| Ok(state.usage(tenant, first, last)))
    }
}
