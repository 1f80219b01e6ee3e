//! Delegations as a hub shows them: published by their daemons, with people's requests to end one.

use std::time::Duration;

use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegationCancellation, DelegationProjection, PublishedDelegation, PublishedDelegationList},
};
use reqwest::Method;

use crate::{
    HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// Publishes the state of one of the caller's own delegations. Safe to repeat.
    pub async fn publish_delegation(
        &self,
        id: DelegationId,
        projection: &DelegationProjection,
    ) -> Result<PublishedDelegation> {
        let url = self.api(&["delegations", &id.to_string()]);
        self.ask(&HubRequest::new(Method::PUT, url).json(projection).retry_safety(RetrySafety::Safe)).await
    }

    pub async fn delegation(&self, id: DelegationId) -> Result<PublishedDelegation> {
        self.get(self.api(&["delegations", &id.to_string()])).await
    }

    /// Newest first.
    pub async fn delegations(&self, page: &PageQuery) -> Result<PublishedDelegationList> {
        let mut url = self.api(&["delegations"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Asks the delegating daemon to end the delegation.
    pub async fn cancel_delegation(&self, id: DelegationId) -> Result<PublishedDelegation> {
        let url = self.api(&["delegations", &id.to_string(), "cancel"]);
        self.ask(&HubRequest::new(Method::POST, url).retry_safety(RetrySafety::Safe)).await
    }

    /// Whether someone asked for it to end, waiting up to `wait` for that.
    pub async fn delegation_cancellation(&self, id: DelegationId, wait: Duration) -> Result<DelegationCancellation> {
        let mut url = self.api(&["delegations", &id.to_string(), "cancellation"]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&HubRequest::new(Method::GET, url).retry_safety(RetrySafety::Safe).timeout(wait)).await
    }
}
