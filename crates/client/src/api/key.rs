//! API keys.

use attache_protocol::{
    KeyId,
    wire::key::{CreateKeyRequest, CreatedKey, KeyList},
};

use crate::{HubClient, PageQuery, Result};

// === impl HubClient ===

impl HubClient {
    /// The response is the only place that shows the key.
    pub async fn create_key(&self, request: &CreateKeyRequest) -> Result<CreatedKey> {
        self.post(self.api(&["api-keys"]), request).await
    }

    pub async fn keys(&self, page: &PageQuery) -> Result<KeyList> {
        let mut url = self.api(&["api-keys"]);
        page.write(&mut url);
        self.get(url).await
    }

    pub async fn revoke_key(&self, key: KeyId) -> Result<()> {
        self.delete(self.api(&["api-keys", &key.to_string()])).await
    }
}
