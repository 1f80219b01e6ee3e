//! Conversations by the names their callers use.

use std::collections::BTreeMap;

use attache_protocol::{ConversationId, digest};
use attache_store::record::{ConversationRecord, SpokenBy};

use crate::{
    Error, Handle, Principal, Result,
    identity::{PrincipalKind, RoleColumn},
};

impl Handle {
    /// The conversation with this name. Each caller has its own names.
    pub fn conversation_called(&self, by: &Principal, name: &str) -> ConversationId {
        let mut hasher = blake3::Hasher::new_derive_key("attache conversations by their callers' names");
        hasher.update(by.tenant.uuid().as_bytes());
        match by.user.filter(|_| !matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run)) {
            Some(user) => hasher.update(user.uuid().as_bytes()),
            None => hasher.update(by.actor().to_string().as_bytes()),
        };
        // All anonymous callers count as one, but what they tell one agent isn't for another.
        if let PrincipalKind::Anonymous { agent } = by.who {
            hasher.update(agent.uuid().as_bytes());
        }
        hasher.update(b"\0").update(name.as_bytes());
        ConversationId::from_uuid(digest::uuid(hasher.finalize()))
    }

    /// The new conversation for a run of this caller, unless it already exists.
    pub(super) async fn unopened(&self, by: &Principal, id: ConversationId) -> Result<Option<ConversationRecord>> {
        match self.store().conversation(by.tenant, id).await {
            Ok(_) => Ok(None),
            Err(attache_store::Error::NotFound) => {
                let (user, created_at, agents) = (by.user, self.now(), BTreeMap::new());
                let spoken_by = SpokenBy::default();
                Ok(Some(ConversationRecord { id, title: None, metadata: None, user, agents, spoken_by, created_at }))
            }
            Err(error) => Err(Error::from_store("conversation", error)),
        }
    }
}
