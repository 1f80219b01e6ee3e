//! Registers an agent by name. The response is the key for opening its channel.

use attache_protocol::{AgentId, Secret, wire::channel::RegisterAgent};
use serde::Deserialize;

use crate::{HubClient, Result};

/// A registered agent, with the only copy of its key.
#[derive(Debug, Clone)]
pub struct AgentWithKey {
    pub api_key: Secret<String>,
    /// The name it registered under.
    pub agent_id: String,
    pub account_id: AgentId,
}

/// Parsed only here, because secrets don't deserialize.
#[derive(Deserialize)]
struct RegisterAnswer {
    api_key: String,
    agent_id: String,
    account_id: AgentId,
}

// === impl HubClient ===

impl HubClient {
    /// Never retried: every response contains a new key that replaces the previous one.
    pub async fn register_agent(&self, request: &RegisterAgent) -> Result<AgentWithKey> {
        let url = self.address().url(&["api", "a2a", "register"]);
        let RegisterAnswer { api_key, agent_id, account_id } = self.post(url, request).await?;
        Ok(AgentWithKey { api_key: Secret::new(api_key), agent_id, account_id })
    }
}
