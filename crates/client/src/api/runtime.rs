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

    pub async fn runtime(&self, runtime: RuntimeId) -> Result<Runtime> {
        self.get(self.api(&["agent-runtimes", &runtime.to_string()])).await
    }

    /// Revokes a device: its next call is refused, and its claims are lost at once.
    pub async fn revoke_runtime(&self, runtime: RuntimeId) -> Result<()> {
        self.delete(self.api(&["agent-runtimes", &runtime.to_string()])).await
    }
}
