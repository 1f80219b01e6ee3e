//! Deliveries: sent webhooks, sending one again, and the signing secret.

use attache_protocol::{
    DeliveryId, RunId, Secret,
    wire::delivery::{Delivery, DeliveryList, DeliverySecret, DeliveryState},
};
use reqwest::Method;

use crate::{
    HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

/// Which deliveries to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub state: Option<DeliveryState>,
    pub run: Option<RunId>,
    pub page: PageQuery,
}

// === impl HubClient ===

impl HubClient {
    pub async fn deliveries(&self, filter: &DeliveryFilter) -> Result<DeliveryList> {
        let mut url = self.api(&["deliveries"]);
        if let Some(state) = filter.state {
            url.query_pairs_mut().append_pair("state", state.as_str());
        }
        if let Some(run) = filter.run {
            url.query_pairs_mut().append_pair("task_run_id", &run.to_string());
        }
        filter.page.write(&mut url);
        self.get(url).await
    }

    pub async fn delivery(&self, delivery: DeliveryId) -> Result<Delivery> {
        self.get(self.api(&["deliveries", &delivery.to_string()])).await
    }

    /// Sends it once more, now, even if it was delivered. Never retried automatically: each call is an attempt of its
    /// own.
    pub async fn resend_delivery(&self, delivery: DeliveryId) -> Result<Delivery> {
        let url = self.api(&["deliveries", &delivery.to_string(), "resend"]);
        self.ask(&HubRequest::new(Method::POST, url).retry_safety(RetrySafety::Never)).await
    }

    /// The secret that signs the caller's own deliveries or, with an agent, that agent's approval webhook.
    pub async fn delivery_secret(&self, agent: Option<&str>) -> Result<Secret<String>> {
        let mut url = self.api(&["deliveries", "secret"]);
        if let Some(agent) = agent {
            url.query_pairs_mut().append_pair("agent_id", agent);
        }
        self.get::<DeliverySecret>(url).await.map(|shown| Secret::new(shown.secret))
    }
}
