//! Decisions about the worktrees of runs.

use attache_protocol::{
    Actor, AgentId, RunId, TenantId, Timestamp,
    wire::worktree::{WorktreeAction, WorktreeOutcome},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorktreeDecision {
    pub run: RunId,
    pub action: WorktreeAction,
    pub message: Option<String>,
    /// From then on, the device doesn't carry it out any more.
    pub expires_at: Timestamp,
}

/// The newest decision about a run's worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeDecisionRecord {
    pub run: RunId,
    pub tenant: TenantId,
    /// The run's agent.
    pub agent: AgentId,
    /// Counts the decisions about this worktree, from 1.
    pub number: i64,
    pub action: WorktreeAction,
    pub message: Option<String>,
    pub decided_by: Actor,
    pub decided_at: Timestamp,
    pub expires_at: Timestamp,
    /// What the device reported, and when.
    pub outcome: Option<(WorktreeOutcome, Timestamp)>,
}

// === impl NewWorktreeDecision ===

impl NewWorktreeDecision {
    pub(crate) fn into_record(
        self,
        before: Option<&WorktreeDecisionRecord>,
        (tenant, agent): (TenantId, AgentId),
        (decided_by, decided_at): (Actor, Timestamp),
    ) -> WorktreeDecisionRecord {
        let Self { run, action, message, expires_at } = self;
        let number = before.map_or(0, |before| before.number) + 1;
        let outcome = None;
        WorktreeDecisionRecord {
            run,
            tenant,
            agent,
            number,
            action,
            message,
            decided_by,
            decided_at,
            expires_at,
            outcome,
        }
    }
}

// === impl WorktreeDecisionRecord ===

impl WorktreeDecisionRecord {
    /// Whether the device may still carry it out.
    pub fn is_pending(&self, at: Timestamp) -> bool {
        self.outcome.is_none() && at < self.expires_at
    }
}
