//! Registering an agent by name, as 004 has it: the answer is the key with which it opens a channel.

use attache_protocol::{AgentId, Secret, wire::channel::RegisterAgent};
use serde::Deserialize;

use crate::{HubClient, Result};

/// A registered agent and the only copy of its key.
#[derive(Debug, Clone)]
pub struct AgentWithKey {
    pub api_key: Secret<String>,
    /// The name under which it registered.
    pub agent_id: String,
    pub account_id: AgentId,
}

/// Read here and nowhere else, because secrets do not deserialise.
#[derive(Deserialize)]
struct RegisterAnswer {
    api_key: String,
    agent_id: String,
    account_id: AgentId,
}

// === impl HubClient ===

impl HubClient {
    /// Never repeated: every answer is a new key that replaces the one before.
    pub async fn register_agent(&self, request: &RegisterAgent) -> Result<AgentWithKey> {
        let url = self.address().url(&["api", "a2a", "register"]);
        let RegisterAnswer { api_key, agent_id, account_id } = self.post(url, request).await?;
        Ok(AgentWithKey { api_key: Secret::new(api_key), agent_id, account_id })
    }
}
