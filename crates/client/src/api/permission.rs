//! Permission requests: for the people who decide them, and for the workers that wait.

use std::time::Duration;

use attache_protocol::{
    PermissionId, RunId,
    rules::permission::PermissionState,
    wire::permission::{CreatePermissionRequest, DecisionRequest, PermissionAnswer, PermissionList, PermissionRequest},
};
use reqwest::Method;

use crate::{
    HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

/// Which permission requests to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionFilter {
    pub state: Option<PermissionState>,
    pub run: Option<RunId>,
    /// An agent's id or name.
    pub agent: Option<String>,
    pub page: PageQuery,
}

// === impl HubClient ===

impl HubClient {
    pub async fn permissions(&self, filter: &PermissionFilter) -> Result<PermissionList> {
        let mut url = self.api(&["permission-requests"]);
        if let Some(state) = filter.state {
            url.query_pairs_mut().append_pair("state", state.as_str());
        }
        if let Some(run) = filter.run {
            url.query_pairs_mut().append_pair("task_run_id", &run.to_string());
        }
        if let Some(agent) = &filter.agent {
            url.query_pairs_mut().append_pair("agent_id", agent);
        }
        filter.page.write(&mut url);
        self.get(url).await
    }

    pub async fn permission(&self, permission: PermissionId) -> Result<PermissionRequest> {
        self.get(self.api(&["permission-requests", &permission.to_string()])).await
    }

    /// Answers a request, finally. Safe to repeat: the same decision by the same person is returned again. If someone
    /// else was first, [`crate::Error::decided`] says who.
    pub async fn decide(&self, permission: PermissionId, decision: &DecisionRequest) -> Result<PermissionRequest> {
        let url = self.api(&["permission-requests", &permission.to_string(), "decision"]);
        self.ask(&HubRequest::new(Method::POST, url).json(decision).retry_safety(RetrySafety::Safe)).await
    }

    /// Asks for a risky step, as the worker of a run. Safe to repeat if the question has an id of its own.
    pub async fn request_permission(&self, run: RunId, request: &CreatePermissionRequest) -> Result<PermissionAnswer> {
        let repeat = if request.request_id.is_some() { RetrySafety::Safe } else { RetrySafety::Never };
        let url = self.api(&["task-runs", &run.to_string(), "permission-requests"]);
        self.ask(&HubRequest::new(Method::POST, url).json(request).retry_safety(repeat)).await
    }

    /// The answer, waiting up to `wait` for it. The state is `pending` if there is no decision by then.
    pub async fn permission_answer(
        &self,
        run: RunId,
        permission: PermissionId,
        wait: Duration,
    ) -> Result<PermissionAnswer> {
        let mut url = self.api(&["task-runs", &run.to_string(), "permission-requests", &permission.to_string()]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&HubRequest::new(Method::GET, url).retry_safety(RetrySafety::Safe).timeout(wait)).await
    }
}
