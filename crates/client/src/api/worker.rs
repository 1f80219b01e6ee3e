//! The calls of a paired device: heartbeat, pull, progress and final reports.

use std::time::Duration;

use attache_protocol::{
    AgentId, RunId,
    wire::{
        run::{
            ClaimedRun, CompleteRequest, FailRequest, FinishResponse, ProgressRequest, ProgressResponse, PullResponse,
            ReleaseRequest,
        },
        runtime::{HeartbeatRequest, HeartbeatResponse},
    },
};
use reqwest::Method;

use crate::{HubClient, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatResponse> {
        self.post(self.api(&["agent-runtimes", "runtime", "heartbeat"]), request).await
    }

    /// Claims the agent's next run, waiting up to `wait` for one. Never retried: every response may be a claim.
    pub async fn pull(&self, agent: AgentId, wait: Duration) -> Result<Option<ClaimedRun>> {
        self.pull_enforcing(agent, wait, &[]).await
    }

    /// The same, for a worker that enforces these limits (`cwd_only`, `no_network`, `no_exec`).
    pub async fn pull_enforcing(
        &self,
        agent: AgentId,
        wait: Duration,
        enforces: &[String],
    ) -> Result<Option<ClaimedRun>> {
        let mut url = self.api(&["agent-accounts", &agent.to_string(), "task-runs", "pull"]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        if !enforces.is_empty() {
            url.query_pairs_mut().append_pair("enforces", &enforces.join(","));
        }
        let answer: PullResponse = self.ask(&HubRequest::new(Method::POST, url).timeout(wait)).await?;
        Ok(answer.task_run)
    }

    pub async fn progress(&self, run: RunId, request: &ProgressRequest) -> Result<ProgressResponse> {
        self.post(self.api(&["task-runs", &run.to_string(), "progress"]), request).await
    }

    /// Repeating the same report is harmless, but when to retry is up to the caller.
    pub async fn complete(&self, run: RunId, request: &CompleteRequest) -> Result<FinishResponse> {
        self.post(self.api(&["task-runs", &run.to_string(), "complete"]), request).await
    }

    pub async fn fail(&self, run: RunId, request: &FailRequest) -> Result<FinishResponse> {
        self.post(self.api(&["task-runs", &run.to_string(), "fail"]), request).await
    }

    /// Returns a claim before its work has started.
    pub async fn release(&self, run: RunId, epoch: i64) -> Result<()> {
        let url = self.api(&["task-runs", &run.to_string(), "release"]);
        self.send(&HubRequest::new(Method::POST, url).json(&ReleaseRequest { epoch })).await.map(drop)
    }
}
