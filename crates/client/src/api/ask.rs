//! Input: what the worker of a run asks its caller, and what the caller gives.

use std::time::Duration;

use attache_protocol::{
    AskId, RunId,
    wire::ask::{AskInput, InputAnswer, InputRequest, InputResponse},
};
use reqwest::Method;

use crate::{
    Hub, Result,
    hub::{Ask, Repeat},
};

// === impl Hub ===

impl Hub {
    /// The worker of a run asks for input. With a name of its own for the question it may be repeated.
    pub async fn ask_input(&self, run: RunId, request: &AskInput) -> Result<InputAnswer> {
        let repeat = if request.request_id.is_some() { Repeat::Safe } else { Repeat::Never };
        let url = self.api(&["task-runs", &run.to_string(), "input-requests"]);
        self.ask(&Ask::new(Method::POST, url).json(request).repeat(repeat)).await
    }

    /// The answer, waiting up to `wait` for it; its state is `pending` when there is none by then.
    pub async fn input_answer(&self, run: RunId, ask: AskId, wait: Duration) -> Result<InputAnswer> {
        let mut url = self.api(&["task-runs", &run.to_string(), "input-requests", &ask.to_string()]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&Ask::new(Method::GET, url).repeat(Repeat::Safe).patience(wait)).await
    }

    /// The caller gives input to a run. With an idempotency key it is repeated when its answer got lost, and given once.
    pub async fn give_input(&self, run: RunId, request: &InputRequest) -> Result<InputResponse> {
        let repeat = if request.idempotency_key.is_some() { Repeat::Safe } else { Repeat::Never };
        let url = self.api(&["task-runs", &run.to_string(), "input"]);
        self.ask(&Ask::new(Method::POST, url).json(request).repeat(repeat)).await
    }
}
