//! Conversations by the names that their callers gave them.

use attache_protocol::ConversationId;
use attache_store::record::NewConversation;

use crate::{
    Handle, Principal, Result,
    error::about,
    identity::{Action, Column},
};

impl Handle {
    /// The conversation that this caller calls so. The same name means another conversation to another caller.
    pub fn conversation_called(&self, by: &Principal, name: &str) -> ConversationId {
        let mut hasher = blake3::Hasher::new_derive_key("attache conversations by their callers' names");
        hasher.update(by.tenant.uuid().as_bytes());
        match by.user.filter(|_| !matches!(by.column(), Column::AgentKey | Column::Run)) {
            Some(user) => hasher.update(user.uuid().as_bytes()),
            None => hasher.update(by.actor().as_bytes()),
        };
        hasher.update(b"\0").update(name.as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ConversationId::from_uuid(uuid::Builder::from_custom_bytes(half).into_uuid())
    }

    /// Makes it, unless it is there.
    pub async fn open_conversation(&self, by: &Principal, id: ConversationId) -> Result<()> {
        by.may(Action::CreateRun)?;
        let found = self.store().conversation(by.tenant, id).await;
        if !matches!(found, Err(attache_store::Error::NotFound)) {
            return found.map(drop).map_err(about("conversation"));
        }
        let new = NewConversation { id, title: None, metadata: None };
        match self.store().create_conversation(self.context(by), new).await {
            Ok(_) => Ok(()),
            // Two messages of a new conversation at the same time: the other one was quicker.
            Err(_) => self.store().conversation(by.tenant, id).await.map(drop).map_err(about("conversation")),
        }
    }
}
