//! Conversations: the boundary of context.

use attache_protocol::{
    ConversationId,
    wire::conversation::{Conversation, ConversationList, CreateConversationRequest},
};
use attache_store::record::NewConversation;

use crate::{
    Handle, Principal, Result, check,
    control::PageRequest,
    error::{about, about_list},
    identity::Action,
    render,
};

pub(crate) const MAX_METADATA: usize = 64 * 1024;

impl Handle {
    pub async fn create_conversation(
        &self,
        by: &Principal,
        request: CreateConversationRequest,
    ) -> Result<Conversation> {
        by.may_all(Action::CreateConversation)?;
        if let Some(title) = &request.title {
            check::line("title", title, 0..=500)?;
        }
        if let Some(metadata) = &request.metadata {
            check::object("metadata", metadata, MAX_METADATA)?;
        }
        let new =
            NewConversation { id: self.env().conversation_id(), title: request.title, metadata: request.metadata };
        let created = self.store().create_conversation(self.context(by), new).await;
        created.map(render::conversation).map_err(about("conversation"))
    }

    /// Includes conversations that a run created for itself.
    pub async fn conversation(&self, by: &Principal, conversation: ConversationId) -> Result<Conversation> {
        self.check_conversation(&by.may(Action::SeeConversations)?, conversation, "conversation").await?;
        let found = self.store().conversation(by.tenant, conversation).await;
        found.map(render::conversation).map_err(about("conversation"))
    }

    /// Conversations that were created explicitly, newest first.
    pub async fn conversations(&self, by: &Principal, page: PageRequest) -> Result<ConversationList> {
        by.may_all(Action::ListConversations)?;
        let page = page.page()?;
        let failed = about_list("conversation", &page);
        let listed = self.store().conversations(by.tenant, page).await.map_err(failed)?;
        let (mut reach, mut conversations) = (self.private_work(by), Vec::new());
        for conversation in listed.items {
            if reach.sees_conversation(&conversation).await? {
                conversations.push(render::conversation(conversation));
            }
        }
        Ok(ConversationList { conversations, next_cursor: listed.next })
    }
}
