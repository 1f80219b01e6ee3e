//! Runtimes: active, alive, and what happens to the claims of lost ones.

use std::time::Duration;

use attache_protocol::{
    Actor, AgentId, RunId, RuntimeId, TenantId, Timestamp,
    rules::run::{RunCommand, apply},
    wire::runtime::RuntimeState,
};

use super::{
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{
        HeartbeatResult, LeaseTimes, ListPage, Pagination, REPLACED_TOKEN_TTL, REUSE_INTERVAL, RuntimeRecord,
        TokenChange,
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn runtime(&self, tenant: TenantId, runtime: RuntimeId) -> Result<RuntimeRecord> {
        self.runtimes.get(&runtime).filter(|found| found.tenant == tenant).cloned().ok_or(Error::NotFound)
    }

    pub(super) fn runtimes(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        page: &Pagination,
    ) -> Result<ListPage<RuntimeRecord>> {
        let wanted =
            |runtime: &RuntimeRecord| runtime.tenant == tenant && agent.is_none_or(|agent| agent == runtime.agent);
        let items = self.runtimes.iter().rev().filter(|(_, runtime)| wanted(runtime));
        page::cut(items.map(|(place, runtime)| (place, runtime.clone())), PageOrder::Descending, page)
    }

    pub(super) fn revoke_runtime(&mut self, context: &WriteContext, runtime: RuntimeId) -> Result<RuntimeRecord> {
        let found = self.runtime(context.tenant, runtime)?;
        if found.state == RuntimeState::Active {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
        self.runtime(context.tenant, runtime)
    }

    pub(super) fn change_token(
        &mut self,
        runtime: RuntimeId,
        change: TokenChange,
        at: Timestamp,
    ) -> Result<RuntimeRecord> {
        let RuntimeRecord { tenant, agent, token_reused_at, .. } = *self.working(runtime)?;
        let actor = entry::runtime_actor(runtime);
        match change {
            TokenChange::Offer(token) => _ = self.offered_tokens.insert(runtime, token),
            TokenChange::Adopt(token) if self.offered_tokens.get(&runtime) == Some(&token) => {
                self.offered_tokens.remove(&runtime);
                let former = self.tokens.iter().find(|(_, of)| **of == runtime).map(|(token, _)| *token);
                let former = former.expect("every runtime has a token");
                self.tokens.remove(&former);
                self.tokens.insert(token, runtime);
                self.replaced_tokens
                    .retain(|_, (of, replaced)| *of != runtime || at.since(*replaced) < REPLACED_TOKEN_TTL);
                self.replaced_tokens.insert(former, (runtime, at));
                self.runtimes.get_mut(&runtime).expect("it was just found").token_rotated_at = Some(at);
                self.append(tenant, at, &actor, entry::runtime_token_rotated(agent, runtime));
            }
            TokenChange::Adopt(_) => {}
            TokenChange::Reuse if token_reused_at.is_some_and(|last| at.since(last) < REUSE_INTERVAL) => {}
            TokenChange::Reuse => {
                self.runtimes.get_mut(&runtime).expect("it was just found").token_reused_at = Some(at);
                self.append(tenant, at, &actor, entry::runtime_token_reused(agent, runtime));
                self.woken.push(WakeHint::Runtime(agent));
            }
        }
        self.working(runtime).cloned()
    }

    pub(super) fn heartbeat(
        &mut self,
        runtime: RuntimeId,
        running: Option<Vec<RunId>>,
        leases: LeaseTimes,
        at: Timestamp,
    ) -> Result<HeartbeatResult> {
        self.working(runtime)?;
        let actor = entry::runtime_actor(runtime);
        self.runtime_seen(runtime, &actor, at);
        let held = self.claims_of(runtime);
        let mut beat = HeartbeatResult::default();
        let Some(named) = running else {
            for place in held {
                self.renew(place, runtime, leases.lease, at);
            }
            return Ok(beat);
        };
        for run in &named {
            match self.places.get(run).copied().filter(|place| held.contains(place)) {
                Some(place) => self.renew(place, runtime, leases.lease, at),
                None => beat.not_held.push(*run),
            }
        }
        for place in held {
            let record = &self.runs[place].record;
            let settled = record.claimed_at.is_some_and(|claimed_at| claimed_at.plus(leases.grace) <= at);
            let id = record.id;
            if settled && !named.contains(&id) {
                self.by_rule(place, &RunCommand::Lose, &actor, at);
                beat.lost.push(id);
            }
        }
        Ok(beat)
    }

    /// Marks an active runtime as alive.
    pub(super) fn runtime_seen(&mut self, runtime: RuntimeId, actor: &Actor, at: Timestamp) {
        let known = self.runtimes.get_mut(&runtime).expect("callers have found it");
        let was_online = std::mem::replace(&mut known.online, true);
        known.last_heartbeat_at = Some(at);
        let (tenant, agent) = (known.tenant, known.agent);
        if !was_online {
            self.append(tenant, at, actor, entry::runtime_online(agent, runtime));
            self.woken.push(WakeHint::Runtime(agent));
        }
    }

    pub(super) fn disconnect_runtime(&mut self, runtime: RuntimeId, at: Timestamp) -> Result<()> {
        if self.working(runtime)?.online {
            self.runtime_gone(runtime, &entry::runtime_actor(runtime), at);
        }
        Ok(())
    }

    pub(super) fn runtime_gone(&mut self, runtime: RuntimeId, actor: &Actor, at: Timestamp) {
        let known = self.runtimes.get_mut(&runtime).expect("callers have found it");
        known.online = false;
        let (tenant, agent) = (known.tenant, known.agent);
        self.append(tenant, at, actor, entry::runtime_offline(agent, runtime));
        self.woken.push(WakeHint::Runtime(agent));
    }

    /// A runtime that is allowed to work.
    pub(super) fn working(&self, runtime: RuntimeId) -> Result<&RuntimeRecord> {
        let found = self.runtimes.get(&runtime).ok_or(Error::NotFound)?;
        match found.state {
            RuntimeState::Active => Ok(found),
            RuntimeState::Superseded | RuntimeState::Revoked => Err(Error::RuntimeEnded(found.state)),
        }
    }

    pub(super) fn active_runtime(&self, agent: AgentId) -> Option<RuntimeId> {
        let mut runtimes = self.runtimes.values();
        runtimes.find(|runtime| runtime.agent == agent && runtime.state == RuntimeState::Active).map(|found| found.id)
    }

    /// Fences an active runtime. Its claims are lost.
    pub(super) fn end_runtime(&mut self, runtime: RuntimeId, state: RuntimeState, actor: &Actor, at: Timestamp) {
        let known = self.runtimes.get_mut(&runtime).expect("callers have found it");
        known.state = state;
        known.online = false;
        known.ended_at = Some(at);
        let (tenant, agent) = (known.tenant, known.agent);
        let entry = match state {
            RuntimeState::Superseded => entry::runtime_superseded(agent, runtime),
            RuntimeState::Active | RuntimeState::Revoked => entry::runtime_revoked(agent, runtime),
        };
        self.append(tenant, at, actor, entry);
        self.woken.push(WakeHint::Runtime(agent));
        for place in self.claims_of(runtime) {
            self.by_rule(place, &RunCommand::Lose, actor, at);
        }
    }

    /// The positions of the runs the runtime holds.
    pub(super) fn claims_of(&self, runtime: RuntimeId) -> Vec<usize> {
        let holds =
            |place: &usize| self.runs[*place].record.state.claim().is_some_and(|claim| claim.runtime == runtime);
        self.runs.places().into_iter().filter(holds).collect()
    }

    pub(super) fn renew_claims(&mut self, lease: Duration, at: Timestamp) {
        for place in self.runs.places() {
            if let Some(runtime) = self.runs[place].record.state.claim().map(|claim| claim.runtime) {
                self.renew(place, runtime, lease, at);
            }
        }
    }

    pub(super) fn renew(&mut self, place: usize, runtime: RuntimeId, lease: Duration, at: Timestamp) {
        let state = &mut self.runs[place].record.state;
        let renewed = apply(state, &RunCommand::Renew { runtime, lease }, at);
        *state = renewed.expect("the runtime holds the run").state;
    }
}
