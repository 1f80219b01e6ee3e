//! Delegations as a hub shows them: what their daemons publish, and people's wish that one ends.

use std::time::Duration;

use attache_protocol::{
    DelegationId,
    wire::delegation::{Cancellation, Projection, Published, PublishedList},
};
use reqwest::Method;

use crate::{
    Hub, Page, Result,
    hub::{Ask, Repeat},
};

// === impl Hub ===

impl Hub {
    /// Says how a delegation of the caller's own is. Saying it again is harmless.
    pub async fn publish_delegation(&self, id: DelegationId, projection: &Projection) -> Result<Published> {
        let url = self.api(&["delegations", &id.to_string()]);
        self.ask(&Ask::new(Method::PUT, url).json(projection).repeat(Repeat::Safe)).await
    }

    pub async fn delegation(&self, id: DelegationId) -> Result<Published> {
        self.get(self.api(&["delegations", &id.to_string()])).await
    }

    /// The newest first.
    pub async fn delegations(&self, page: &Page) -> Result<PublishedList> {
        let mut url = self.api(&["delegations"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Asks the daemon that lends the folder to end it.
    pub async fn cancel_delegation(&self, id: DelegationId) -> Result<Published> {
        let url = self.api(&["delegations", &id.to_string(), "cancel"]);
        self.ask(&Ask::new(Method::POST, url).repeat(Repeat::Safe)).await
    }

    /// Whether somebody wants it to end, waiting up to `wait` for that.
    pub async fn delegation_cancellation(&self, id: DelegationId, wait: Duration) -> Result<Cancellation> {
        let mut url = self.api(&["delegations", &id.to_string(), "cancellation"]);
        url.query_pairs_mut().append_pair("wait_ms", &wait.as_millis().to_string());
        self.ask(&Ask::new(Method::GET, url).repeat(Repeat::Safe).patience(wait)).await
    }
}
