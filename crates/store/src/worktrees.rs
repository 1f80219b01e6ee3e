//! Decisions about the worktrees of runs, on their way to the devices that have the worktrees.

use attache_protocol::{AgentId, RunId, RuntimeId, TenantId, Timestamp, wire::worktree::WorktreeOutcome};

use crate::{
    Result, WriteContext,
    record::worktree::{NewWorktreeDecision, WorktreeDecisionRecord},
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] apply here too. A decision is removed with its run.
    ///
    /// | method | log rows, in the tenant's log only |
    /// |---|---|
    /// | `decide_worktree` | `worktree.decided {"task_run_id","action"}` |
    /// | `settle_worktree` | `worktree.settled {"task_run_id","action","result"}` the first time |
    pub trait WorktreeStore, layer WorktreeStoreLayer, call WorktreeCall {
        /// Replaces the run's decision, and wakes the run's agent (`WakeHint::Runtime`). `VersionChanged` while the device may
        /// still carry out the previous one.
        async fn decide_worktree(
            &self,
            context: WriteContext,
            decision: NewWorktreeDecision,
        ) -> Result<WorktreeDecisionRecord>;

        /// Records what the runtime made of the decision with this number, also when it is late. The first report counts.
        /// `NotFound` if the decision was replaced, and for a runtime that isn't of the run's agent.
        async fn settle_worktree(
            &self,
            runtime: RuntimeId,
            run: RunId,
            number: i64,
            outcome: WorktreeOutcome,
            at: Timestamp,
        ) -> Result<WorktreeDecisionRecord>;

        /// `None` if nobody decided about the run's worktree.
        async fn worktree_decision(&self, tenant: TenantId, run: RunId) -> Result<Option<WorktreeDecisionRecord>>;

        /// The decisions that the agent's device may still carry out, in the order in which they were first made.
        async fn pending_worktrees(&self, agent: AgentId, at: Timestamp) -> Result<Vec<WorktreeDecisionRecord>>;
    }
}
