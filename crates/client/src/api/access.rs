//! The access rules of agents.

use attache_protocol::wire::access::{AccessDecision, AccessRules, CheckAccess, SetAccessRules};
use reqwest::Method;

use crate::{HubClient, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn access_rules(&self) -> Result<AccessRules> {
        self.get(self.api(&["permission-rules"])).await
    }

    /// Replaces all rules.
    pub async fn set_access_rules(&self, request: &SetAccessRules) -> Result<AccessRules> {
        self.ask(&HubRequest::new(Method::PUT, self.api(&["permission-rules"])).json(request)).await
    }

    /// What the current rules decide about an agent and a target, and which rule decides.
    pub async fn check_access(&self, request: &CheckAccess) -> Result<AccessDecision> {
        self.post(self.api(&["permission-rules", "check"]), request).await
    }
}
