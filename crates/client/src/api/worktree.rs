//! What becomes of the worktrees of runs: decided by the agent's owner, carried out by its device.

use std::time::Duration;

use attache_protocol::{
    RunId,
    wire::worktree::{DecideWorktreeRequest, DecidedWorktree, PendingWorktreeDecisionList, SettleWorktreeRequest},
};
use reqwest::Method;

use crate::{
    HubClient, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// What was decided last, waiting up to `wait` for the device's answer.
    pub async fn worktree_decision(&self, run: RunId, wait: Duration) -> Result<DecidedWorktree> {
        let mut url = self.api(&["task-runs", &run.to_string(), "worktree"]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&HubRequest::new(Method::GET, url).retry_safety(RetrySafety::Safe).timeout(wait)).await
    }

    /// Has the agent's device commit, apply or discard the worktree. Not retried: a lost answer is found with
    /// [`Self::worktree_decision`].
    pub async fn decide_worktree(&self, run: RunId, request: &DecideWorktreeRequest) -> Result<DecidedWorktree> {
        self.post(self.api(&["task-runs", &run.to_string(), "worktree"]), request).await
    }

    /// For a device: the decisions that it is to carry out.
    pub async fn pending_worktree_decisions(&self) -> Result<PendingWorktreeDecisionList> {
        self.get(self.api(&["agent-runtimes", "runtime", "worktree-decisions"])).await
    }

    /// For a device: what it made of a decision. Safe to repeat.
    pub async fn settle_worktree(&self, run: RunId, request: &SettleWorktreeRequest) -> Result<()> {
        let url = self.api(&["task-runs", &run.to_string(), "worktree", "outcome"]);
        self.send(&HubRequest::new(Method::POST, url).json(request).retry_safety(RetrySafety::Safe)).await.map(drop)
    }
}
