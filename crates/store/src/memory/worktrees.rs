//! Decisions about the worktrees of runs.

use async_trait::async_trait;
use attache_protocol::{Actor, AgentId, RunId, RuntimeId, TenantId, Timestamp, wire::worktree::WorktreeOutcome};

use super::{MemoryStore, state::ModelState};
use crate::{
    Error, Result, WakeHint, WorktreeStore, WriteContext, entry,
    record::worktree::{NewWorktreeDecision, WorktreeDecisionRecord},
};

// === impl ModelState ===

impl ModelState {
    fn decide_worktree(&mut self, context: &WriteContext, new: NewWorktreeDecision) -> Result<WorktreeDecisionRecord> {
        let place = self.place(context.tenant, new.run)?;
        let agent = self.runs[place].record.agent;
        let known = self.worktree_decisions.iter().position(|known| known.run == new.run);
        let before = known.map(|known| &self.worktree_decisions[known]);
        if before.is_some_and(|before| before.is_pending(context.at)) {
            return Err(Error::VersionChanged);
        }
        let decision = new.into_record(before, (context.tenant, agent), (context.actor.clone(), context.at));
        match known {
            Some(known) => self.worktree_decisions[known] = decision.clone(),
            None => self.worktree_decisions.push(decision.clone()),
        }
        let row = entry::worktree::decided(decision.run, decision.action);
        self.append(context.tenant, context.at, &context.actor, row);
        self.woken.push(WakeHint::Runtime(agent));
        Ok(decision)
    }

    fn settle_worktree(
        &mut self,
        runtime: RuntimeId,
        run: RunId,
        number: i64,
        outcome: WorktreeOutcome,
        at: Timestamp,
    ) -> Result<WorktreeDecisionRecord> {
        let agent = self.runtimes.get(&runtime).ok_or(Error::NotFound)?.agent;
        let mut all = self.worktree_decisions.iter_mut();
        let known = all.find(|known| known.run == run && known.agent == agent && known.number == number);
        let known = known.ok_or(Error::NotFound)?;
        if known.outcome.is_some() {
            return Ok(known.clone());
        }
        known.outcome = Some((outcome.clone(), at));
        let settled = known.clone();
        let row = entry::worktree::settled(run, settled.action, outcome.result);
        self.append(settled.tenant, at, &Actor::Runtime(runtime), row);
        Ok(settled)
    }
}

// === impl MemoryStore ===

#[async_trait]
impl WorktreeStore for MemoryStore {
    async fn decide_worktree(
        &self,
        context: WriteContext,
        decision: NewWorktreeDecision,
    ) -> Result<WorktreeDecisionRecord> {
        self.write(|state| state.decide_worktree(&context, decision))
    }

    async fn settle_worktree(
        &self,
        runtime: RuntimeId,
        run: RunId,
        number: i64,
        outcome: WorktreeOutcome,
        at: Timestamp,
    ) -> Result<WorktreeDecisionRecord> {
        self.write(|state| state.settle_worktree(runtime, run, number, outcome, at))
    }

    async fn worktree_decision(&self, tenant: TenantId, run: RunId) -> Result<Option<WorktreeDecisionRecord>> {
        self.read(|state| {
            let mut own = state.worktree_decisions.iter().filter(|known| known.tenant == tenant);
            Ok(own.find(|known| known.run == run).cloned())
        })
    }

    async fn pending_worktrees(&self, agent: AgentId, at: Timestamp) -> Result<Vec<WorktreeDecisionRecord>> {
        self.read(|state| {
            let own = state.worktree_decisions.iter().filter(|known| known.agent == agent);
            Ok(own.filter(|known| known.is_pending(at)).cloned().collect())
        })
    }
}
