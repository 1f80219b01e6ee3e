//! Agent accounts.

use attache_protocol::wire::account::{Account, AccountList, AccountRequest, TrustRequest};
use reqwest::Method;

use crate::{HubClient, PageQuery, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn create_account(&self, request: &AccountRequest) -> Result<Account> {
        self.post(self.api(&["agent-accounts"]), request).await
    }

    pub async fn accounts(&self, page: &PageQuery) -> Result<AccountList> {
        let mut url = self.api(&["agent-accounts"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// `agent` is an id or a name, here and in all other calls.
    pub async fn account(&self, agent: &str) -> Result<Account> {
        self.get(self.api(&["agent-accounts", agent])).await
    }

    pub async fn update_account(&self, agent: &str, change: &AccountRequest) -> Result<Account> {
        self.ask(&HubRequest::new(Method::PATCH, self.api(&["agent-accounts", agent])).json(change)).await
    }

    /// Trusts the outside agent's current card.
    pub async fn trust_account(&self, agent: &str, request: &TrustRequest) -> Result<Account> {
        self.post(self.api(&["agent-accounts", agent, "trust"]), request).await
    }

    pub async fn archive_account(&self, agent: &str) -> Result<()> {
        self.delete(self.api(&["agent-accounts", agent])).await
    }
}
