//! Short-lived tokens.

use attache_protocol::wire::token::{IssuedToken, KeySet, TokenRequest};

use crate::{HubClient, Result};

// === impl HubClient ===

impl HubClient {
    /// The answer is the only place that shows the token. It is worth what this client's key is worth, or less.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<IssuedToken> {
        self.post(self.api(&["tokens"]), request).await
    }

    /// With what anybody verifies tokens.
    pub async fn token_keys(&self) -> Result<KeySet> {
        self.get(self.address().url(&[".well-known", "jwks.json"])).await
    }
}
