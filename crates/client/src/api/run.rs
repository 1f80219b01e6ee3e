//! Task runs, for those who create them.

use attache_protocol::{
    ConversationId, RunId, Timestamp,
    rules::run::RunStatus,
    wire::{
        event::EventPage,
        run::{CancelRequest, CreateRunRequest, Run, RunList},
    },
};
use reqwest::Method;

use crate::{
    EventStream, HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    pub status: Option<RunStatus>,
    /// An agent's id or name.
    pub agent: Option<String>,
    pub conversation: Option<ConversationId>,
    /// Only runs that wait for a person: for an approval or for input.
    pub waiting: bool,
    /// Only runs created at this time or later.
    pub since: Option<Timestamp>,
    /// Only runs requested by this person or agent, by name or id.
    pub caller: Option<String>,
    /// Only runs whose task, id or agent's name contains this text.
    pub text: Option<String>,
    pub page: PageQuery,
}

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

    pub async fn runs(&self, filter: &RunFilter) -> Result<RunList> {
        let mut url = self.api(&["task-runs"]);
        if let Some(status) = filter.status {
            url.query_pairs_mut().append_pair("status", status.as_str());
        }
        if let Some(agent) = &filter.agent {
            url.query_pairs_mut().append_pair("agent_id", agent);
        }
        if let Some(conversation) = filter.conversation {
            url.query_pairs_mut().append_pair("conversation_id", &conversation.to_string());
        }
        if filter.waiting {
            url.query_pairs_mut().append_pair("waiting", "true");
        }
        if let Some(since) = filter.since {
            url.query_pairs_mut().append_pair("since", &since.to_string());
        }
        for (name, value) in [("caller", &filter.caller), ("text", &filter.text)] {
            if let Some(value) = value {
                url.query_pairs_mut().append_pair(name, value);
            }
        }
        filter.page.write(&mut url);
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
