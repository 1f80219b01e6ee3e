//! Conversations by the names their callers use.

use attache_protocol::ConversationId;
use attache_store::record::ConversationRecord;

use crate::{Error, Handle, Principal, Result, identity::RoleColumn};

impl Handle {
    /// The conversation with this name. Each caller has its own names.
    pub fn conversation_called(&self, by: &Principal, name: &str) -> ConversationId {
        let mut hasher = blake3::Hasher::new_derive_key("attache conversations by their callers' names");
        hasher.update(by.tenant.uuid().as_bytes());
        match by.user.filter(|_| !matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run)) {
            Some(user) => hasher.update(user.uuid().as_bytes()),
            None => hasher.update(by.actor().to_string().as_bytes()),
        };
        hasher.update(b"\0").update(name.as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ConversationId::from_uuid(uuid::Builder::from_custom_bytes(half).into_uuid())
    }

    /// The new conversation for a run of this caller, unless it already exists.
    pub(super) async fn unopened(&self, by: &Principal, id: ConversationId) -> Result<Option<ConversationRecord>> {
        match self.store().conversation(by.tenant, id).await {
            Ok(_) => Ok(None),
            Err(attache_store::Error::NotFound) => {
                Ok(Some(ConversationRecord { id, title: None, metadata: None, user: by.user, created_at: self.now() }))
            }
            Err(error) => Err(Error::from_store("conversation", error)),
        }
    }
}
