//! Sessions that an agent's host keeps on its device.

use attache_protocol::wire::host_session::HostSessionList;

use crate::{HubClient, Result};

// === impl HubClient ===

impl HubClient {
    /// What the host of one's own agent keeps for its working folder, newest first.
    pub async fn host_sessions(&self, agent: &str) -> Result<HostSessionList> {
        self.get(self.api(&["agent-accounts", agent, "host-sessions"])).await
    }
}
