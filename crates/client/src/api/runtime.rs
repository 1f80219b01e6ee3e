//! The devices paired with agents.

use attache_protocol::{
    RuntimeId,
    wire::runtime::{Runtime, RuntimeList},
};

use crate::{HubClient, PageQuery, Result};

// === impl HubClient ===

impl HubClient {
    pub async fn runtimes(&self, page: &PageQuery) -> Result<RuntimeList> {
        let mut url = self.api(&["agent-runtimes"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// The devices of one agent, current and former.
    pub async fn runtimes_of(&self, agent: &str, page: &PageQuery) -> Result<RuntimeList> {
        let mut url = self.api(&["agent-runtimes"]);
        url.query_pairs_mut().append_pair("agent_id", agent);
        page.write(&mut url);
        self.get(url).await
    }

    pub async fn runtime(&self, runtime: RuntimeId) -> Result<Runtime> {
        self.get(self.api(&["agent-runtimes", &runtime.to_string()])).await
    }

    /// Revokes a device: its next call is refused, and its claims are lost at once.
    pub async fn revoke_runtime(&self, runtime: RuntimeId) -> Result<()> {
        self.delete(self.api(&["agent-runtimes", &runtime.to_string()])).await
    }
}
