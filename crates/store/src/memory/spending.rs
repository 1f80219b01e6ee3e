//! Quotas and what was used. Accounts are added up from the runs whenever they are looked at.

use std::collections::BTreeMap;

use async_trait::async_trait;
use attache_protocol::{
    AgentId, Json, RunId, TenantId, Timestamp, UserId,
    rules::{
        quota::{
            Account, Budget, Day, Exceeded, Limits, Line, Request, Reservation, Verdict, check, left, report, reserve,
        },
        run::{Command, FailureCode, Refusal, Status, Transition, Worker},
    },
    wire::{
        run::Limit,
        usage::{CostSource, Used},
    },
};

use super::{
    Memory,
    state::{Run, State},
};
use crate::{
    Context, Error, Result, Spending, entry, outcome,
    record::{
        AgentRef,
        spending::{Quota, Target, Usage},
    },
};

// === impl State ===

impl State {
    fn set_quota(&mut self, context: &Context, target: Target, limits: Limits) -> Result<Quota> {
        let Context { tenant, at, .. } = *context;
        self.known_tenant(tenant)?;
        if let Some(user) = target.user {
            self.present_user(tenant, user)?;
        }
        if let Some(agent) = target.agent {
            self.living_agent(tenant, &AgentRef::Id(agent)).map_err(|_| Error::NotFound)?;
        }
        self.quotas.insert((tenant, target), limits);
        self.append(tenant, at, &context.actor, entry::people::quota_changed(target, limits));
        Ok(Quota { target, limits, account: self.spent(tenant, target, Day::of(at)) })
    }

    fn remove_quota(&mut self, context: &Context, target: Target) -> Result<()> {
        self.quotas.remove(&(context.tenant, target)).ok_or(Error::NotFound)?;
        self.append(context.tenant, context.at, &context.actor, entry::people::quota_removed(target));
        Ok(())
    }

    fn quotas(&self, tenant: TenantId, at: Timestamp) -> Vec<Quota> {
        let quotas = self.quotas.iter().filter(|((owner, _), _)| *owner == tenant);
        let shown = quotas.map(|((_, target), limits)| Quota {
            target: *target,
            limits: *limits,
            account: self.spent(tenant, *target, Day::of(at)),
        });
        shown.collect()
    }

    /// The account of a day: what its runs spent, and what those that have not ended hold.
    fn spent(&self, tenant: TenantId, target: Target, day: Day) -> Account {
        let mut account = Account::new(day);
        for Run { record, reservation, refused, .. } in self.runs.iter().chain(&self.removed_runs) {
            if record.tenant != tenant || reservation.day != day || !target.covers(record.user, record.agent) {
                continue;
            }
            if !record.state.status().is_terminal() {
                account.held = account.held.plus(reservation.held);
            } else if !refused {
                account.spent = account.spent.plus(Used::spend(record.usage.as_ref()));
            }
        }
        account
    }

    /// The quotas that a run of this user with this agent falls under, as they stand on that day.
    fn lines(&self, tenant: TenantId, user: Option<UserId>, agent: AgentId, day: Day) -> (Vec<Target>, Vec<Line>) {
        let limited = Target::covering(user, agent).filter_map(|target| {
            let limits = *self.quotas.get(&(tenant, target))?;
            Some((target, Line { limits, account: self.spent(tenant, target, day) }))
        });
        limited.unzip()
    }

    fn lines_of(&self, place: usize) -> Vec<Line> {
        let Run { record, reservation, .. } = &self.runs[place];
        self.lines(record.tenant, record.user, record.agent, reservation.day).1
    }

    /// What a new run holds, if its quotas have room for it.
    pub(super) fn reserve(&self, context: &Context, agent: AgentId, request: Request) -> Result<Reservation> {
        let (targets, lines) = self.lines(context.tenant, context.user, agent, Day::of(context.at));
        match reserve(&lines, request, context.at) {
            Ok(reserved) => Ok(reserved.reservation),
            Err(exceeded) => {
                let target = exceeded.line.map_or(Target::default(), |line| targets[line]);
                Err(Error::QuotaExceeded { target, exceeded })
            }
        }
    }

    /// Whether a pending run may still be claimed. If not, it has failed; one that was never claimed counts nowhere.
    pub(super) fn has_room(&mut self, place: usize, at: Timestamp) -> bool {
        match check(&self.lines_of(place)) {
            Ok(()) => true,
            Err(exceeded) => {
                self.runs[place].refused = self.runs[place].record.state.epoch == 0;
                self.exceed(place, &exceeded, at);
                false
            }
        }
    }

    /// Whether this worker may claim a pending run: it enforces every limit that the run asks for. If not, the run has
    /// failed; one that was never claimed counts nowhere.
    pub(super) fn keeps_limits(&mut self, place: usize, enforces: &[Limit], at: Timestamp) -> bool {
        let Some(unmet) = self.runs[place].record.sandbox.and_then(|sandbox| sandbox.unmet(enforces)) else {
            return true;
        };
        self.runs[place].refused = self.runs[place].record.state.epoch == 0;
        self.halt(place, FailureCode::Refused, outcome::refused_for_limits(&unmet), at);
        false
    }

    /// Takes a running run's new total, and stops the run if there is no room for it.
    pub(super) fn report_usage(&mut self, place: usize, usage: Json, at: Timestamp) {
        let used = Used::spend(Some(&usage));
        let (reserved, verdict) = report(&self.lines_of(place), self.runs[place].reservation, used);
        let run = &mut self.runs[place];
        run.record.usage = Some(usage);
        run.reservation = reserved.reservation;
        if let Verdict::Stop(exceeded) = verdict {
            self.exceed(place, &exceeded, at);
        }
    }

    /// Keeps what a run used in all when its last worker says so after somebody else ended it.
    pub(super) fn or_late_usage(
        &mut self,
        judged: Result<Transition>,
        place: usize,
        by: Worker,
        usage: Option<&Json>,
        at: Timestamp,
    ) -> Result<Transition> {
        let Run { record, refused, .. } = &mut self.runs[place];
        if let (Err(Error::Refused { refusal: Refusal::Ended, .. }), Some(usage)) = (&judged, usage)
            && record.runtime == Some(by.runtime)
            && !*refused
            && Used::of(Some(usage)).grew_from(Used::of(record.usage.as_ref()))
        {
            record.usage = Some(usage.clone());
            let (tenant, run) = (record.tenant, record.id);
            self.append(tenant, at, &entry::runtime_actor(by.runtime), entry::task_usage(run, usage));
        }
        judged
    }

    /// What is left for a run, of its budget and its quotas.
    pub(super) fn left(&self, place: usize) -> Budget {
        let used = Used::spend(self.runs[place].record.usage.as_ref());
        left(&self.lines_of(place), self.runs[place].reservation, used)
    }

    /// A quota ends the run.
    fn exceed(&mut self, place: usize, exceeded: &Exceeded, at: Timestamp) {
        self.halt(place, FailureCode::QuotaExceeded, outcome::failed_by_quota(exceeded), at);
    }

    fn halt(&mut self, place: usize, code: FailureCode, result: Json, at: Timestamp) {
        let transition = self.judge(place, &Command::Halt { code }, at).expect("a live run can be halted");
        let worker = self.told_to_stop(place);
        self.runs[place].record.result = Some(result);
        let row = entry::task_failed(code);
        self.settle(place, transition.state, row, Context::SYSTEM, at);
        self.tell_to_stop(worker, place);
    }

    fn usage(&self, tenant: TenantId, first: Day, last: Day) -> Vec<Usage> {
        let mut rows: BTreeMap<(Day, Option<UserId>, AgentId), Usage> = BTreeMap::new();
        for Run { record, reservation, refused, .. } in self.runs.iter().chain(&self.removed_runs) {
            let day = reservation.day;
            let Some(ended_at) = record.ended_at else { continue };
            if record.tenant != tenant || *refused || day < first || day > last {
                continue;
            }
            let (user, agent) = (record.user, record.agent);
            let row = rows.entry((day, user, agent)).or_insert(Usage {
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
            let used = Used::of(record.usage.as_ref());
            row.calls += 1;
            row.failed += u64::from(record.state.status() != Status::Completed);
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

// === impl Memory ===

#[async_trait]
impl Spending for Memory {
    async fn set_quota(&self, context: Context, target: Target, limits: Limits) -> Result<Quota> {
        self.write(|state| state.set_quota(&context, target, limits))
    }

    async fn remove_quota(&self, context: Context, target: Target) -> Result<()> {
        self.write(|state| state.remove_quota(&context, target))
    }

    async fn quotas(&self, tenant: TenantId, at: Timestamp) -> Result<Vec<Quota>> {
        self.read(|state| Ok(state.quotas(tenant, at)))
    }

    async fn left(&self, tenant: TenantId, run: RunId) -> Result<Budget> {
        self.read(|state| {
            let place = state.place(tenant, run)?;
            let ended = state.runs[place].record.state.status().is_terminal();
            Ok(if ended { Budget::default() } else { state.left(place) })
        })
    }

    async fn usage(&self, tenant: TenantId, first: Day, last: Day) -> Result<Vec<Usage>> {
        self.read(|state| Ok(state.usage(tenant, first, last)))
    }
}
