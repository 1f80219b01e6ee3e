//! Steps about what becomes of the worktrees of runs.

use std::time::Duration;

use attache_protocol::wire::worktree::{WorktreeAction, WorktreeOutcome, WorktreeResult};

use super::StepGenerator;
use crate::{
    WorktreeStore as _, conformance::step::StoreStep, memory::MemoryStore, record::worktree::NewWorktreeDecision,
};

// === impl StepGenerator ===

impl StepGenerator {
    /// A decision, a device's report about the newest one, or a read.
    pub(super) async fn worktree(&self, model: &MemoryStore) -> StoreStep {
        // Often the same, so that decisions meet.
        let oldest = self.known.runs.first().copied().filter(|_| self.draw.percent(60));
        let run = oldest.unwrap_or_else(|| self.run());
        match self.draw.below(10) {
            0..3 => {
                let decision = NewWorktreeDecision {
                    run,
                    action: self.draw.one_of(&WorktreeAction::ALL).unwrap_or(WorktreeAction::Apply),
                    message: self.draw.percent(30).then(|| self.draw.text()),
                    expires_at: self.now().plus(Duration::from_secs(self.draw.below(600))),
                };
                StoreStep::DecideWorktree(self.context(), decision)
            }
            3..7 => {
                let decided = model.worktree_decision(self.tenant, run).await.ok().flatten();
                let number = decided.as_ref().map_or(1, |decided| decided.number);
                let number = if self.draw.percent(10) { number - 1 } else { number };
                let active = self.active(model).await;
                let own = active.iter().find(|(_, agent)| decided.as_ref().is_some_and(|it| it.agent == *agent));
                let runtime = match own {
                    Some((runtime, _)) if self.draw.percent(80) => *runtime,
                    _ => self.some_runtime(model).await,
                };
                StoreStep::SettleWorktree(runtime, run, number, self.outcome(), self.at())
            }
            7..9 => StoreStep::PendingWorktrees(self.agent(), self.at()),
            _ => StoreStep::WorktreeDecision(self.tenant(), run),
        }
    }

    fn outcome(&self) -> WorktreeOutcome {
        WorktreeOutcome {
            result: self.draw.one_of(&WorktreeResult::ALL).unwrap_or(WorktreeResult::Done),
            branch: self.draw.percent(50).then(|| self.draw.text()),
            commit: None,
            folder: self.draw.percent(30).then(|| self.draw.text()),
            files: (0..self.draw.below(3)).map(|_| self.draw.text()).collect(),
            message: self.draw.percent(30).then(|| self.draw.text()),
        }
    }
}
