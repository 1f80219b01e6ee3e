//! The hub itself: health, audit log, and login links.

use attache_protocol::{
    KeyId,
    wire::{
        audit::AuditPage,
        session::{ConsoleSessionList, LoginLinkRequest},
        system::{HubHealth, LoginLink},
    },
};
use reqwest::Method;

use crate::{HubClient, PageQuery, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn health(&self) -> Result<HubHealth> {
        self.ask(&HubRequest::new(Method::GET, self.address().url(&["healthz"]))).await
    }

    /// One page of the tenant's log, after the row with the seq `after`.
    pub async fn audit(&self, after: i64, limit: Option<u32>) -> Result<AuditPage> {
        let mut url = self.api(&["audit"]);
        url.query_pairs_mut().append_pair("after", &after.to_string());
        PageQuery { limit, cursor: None }.write(&mut url);
        self.get(url).await
    }

    /// Creates a link that signs in one browser, once.
    pub async fn create_login_link(&self, request: &LoginLinkRequest) -> Result<LoginLink> {
        self.post(self.api(&["login-links"]), request).await
    }

    pub async fn sessions(&self, page: &PageQuery) -> Result<ConsoleSessionList> {
        let mut url = self.api(&["sessions"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Signs that browser out.
    pub async fn end_session(&self, session: KeyId) -> Result<()> {
        self.delete(self.api(&["sessions", &session.to_string()])).await
    }
}
