//! Standing grants.

use attache_protocol::{GrantId, wire::permission::GrantList};
use reqwest::Method;

use crate::{
    HubClient, PageQuery, Result,
    hub::{HubRequest, RetrySafety},
};

// === impl HubClient ===

impl HubClient {
    /// Newest first, including revoked and expired ones.
    pub async fn grants(&self, page: &PageQuery) -> Result<GrantList> {
        let mut url = self.api(&["permission-grants"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Safe to repeat.
    pub async fn revoke_grant(&self, grant: GrantId) -> Result<()> {
        let url = self.api(&["permission-grants", &grant.to_string()]);
        self.send(&HubRequest::new(Method::DELETE, url).retry_safety(RetrySafety::Safe)).await.map(drop)
    }
}
