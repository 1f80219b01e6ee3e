//! Short-lived tokens.

use attache_protocol::wire::token::{IssuedToken, KeySet, TokenRequest};

use crate::{HubClient, Result};

// === impl HubClient ===

impl HubClient {
    /// The response is the only place that shows the token. Its permissions are at most those of this client's key.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<IssuedToken> {
        self.post(self.api(&["tokens"]), request).await
    }

    /// The public keys for verifying tokens.
    pub async fn token_keys(&self) -> Result<KeySet> {
        self.get(self.address().url(&[".well-known", "jwks.json"])).await
    }
}
