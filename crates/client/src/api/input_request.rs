//! Input requests: a run's worker asks its caller, and the caller answers.

use std::time::Duration;

use attache_protocol::{
    RunId, WorkerRequestId,
    wire::input_request::{CreateInputRequest, GiveInputRequest, GiveInputResponse, InputAnswer},
};
use reqwest::Method;

use crate::{
    HubClient, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// Asks for input, as the worker of a run. Safe to repeat if the question has an id of its own.
    pub async fn request_input(&self, run: RunId, request: &CreateInputRequest) -> Result<InputAnswer> {
        let repeat = if request.request_id.is_some() { RetrySafety::Safe } else { RetrySafety::Never };
        let url = self.api(&["task-runs", &run.to_string(), "input-requests"]);
        self.ask(&HubRequest::new(Method::POST, url).json(request).retry_safety(repeat)).await
    }

    /// The answer, waiting up to `wait` for it. The state is `pending` if there is none by then.
    pub async fn input_answer(&self, run: RunId, ask: WorkerRequestId, wait: Duration) -> Result<InputAnswer> {
        let mut url = self.api(&["task-runs", &run.to_string(), "input-requests", &ask.to_string()]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&HubRequest::new(Method::GET, url).retry_safety(RetrySafety::Safe).timeout(wait)).await
    }

    /// Gives input to a run, as its caller. With an idempotency key it is retried if the response got lost, and
    /// delivered once.
    pub async fn give_input(&self, run: RunId, request: &GiveInputRequest) -> Result<GiveInputResponse> {
        let repeat = if request.idempotency_key.is_some() { RetrySafety::Safe } else { RetrySafety::Never };
        let url = self.api(&["task-runs", &run.to_string(), "input"]);
        self.ask(&HubRequest::new(Method::POST, url).json(request).retry_safety(repeat)).await
    }
}
