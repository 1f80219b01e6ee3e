//! Task runs, for those who create them.

use attache_protocol::{
    Json, RunId,
    json::Members,
    wire::{
        event::EventPage,
        run::{CancelRequest, CreateRunRequest, Run, RunList, RunQuery},
    },
};
use reqwest::Method;

use crate::{
    EventStream, HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// Creates a run. With an idempotency key the request is retried if the response got lost, and creates one run.
    pub async fn create_run(&self, request: &CreateRunRequest) -> Result<Run> {
        let repeat = if request.idempotency_key.is_some() { RetrySafety::Safe } else { RetrySafety::Never };
        self.ask(&HubRequest::new(Method::POST, self.api(&["task-runs"])).json(request).retry_safety(repeat)).await
    }

    pub async fn run(&self, run: RunId) -> Result<Run> {
        self.get(self.api(&["task-runs", &run.to_string()])).await
    }

    pub async fn runs(&self, query: &RunQuery) -> Result<RunList> {
        let mut url = self.api(&["task-runs"]);
        let members = Json::of(query).parse::<Members>().map_or_else(|_| Vec::new(), |members| members.0);
        for (name, value) in members {
            let text = value.parse::<String>().unwrap_or_else(|_| value.get().to_owned());
            url.query_pairs_mut().append_pair(&name, &text);
        }
        self.get(url).await
    }

    /// Ends the run at once. Safe to repeat: cancelling a cancelled run returns the same response.
    pub async fn cancel_run(&self, run: RunId, reason: Option<&str>) -> Result<Run> {
        let url = self.api(&["task-runs", &run.to_string(), "cancel"]);
        let body = CancelRequest { reason: reason.map(str::to_owned) };
        self.ask(&HubRequest::new(Method::POST, url).json(&body).retry_safety(RetrySafety::Safe)).await
    }

    /// Deletes a run that has ended, with its result and all related data.
    pub async fn delete_run(&self, run: RunId) -> Result<()> {
        let url = self.api(&["task-runs", &run.to_string()]);
        self.send(&HubRequest::new(Method::DELETE, url)).await.map(drop)
    }

    /// One page of the run's events, after the event with the seq `after`.
    pub async fn run_events(&self, run: RunId, after: i64, limit: Option<u32>) -> Result<EventPage> {
        let mut url = self.api(&["task-runs", &run.to_string(), "events"]);
        url.query_pairs_mut().append_pair("after", &after.to_string());
        PageQuery { limit, cursor: None }.write(&mut url);
        self.get(url).await
    }

    /// Every event of the run after `after`, exactly once and in order, until the run has ended.
    pub fn follow(&self, run: RunId, after: i64) -> EventStream {
        EventStream::new(self.clone(), run, after)
    }
}
