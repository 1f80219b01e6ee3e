//! Conversations: the boundary of context.

use attache_protocol::{
    AgentId, ConversationId,
    wire::{
        account::Callers,
        conversation::{Conversation, ConversationList, CreateConversationRequest},
    },
};
use attache_store::record::NewConversation;

use crate::{
    Handle, Principal, Result, check,
    control::{PageRequest, route::AgentSelector, run_mode::stated_mode},
    error::{about, about_list},
    identity::{Action, Permit},
    render,
};

pub(crate) const MAX_METADATA: usize = 64 * 1024;

impl Handle {
    pub async fn create_conversation(
        &self,
        by: &Principal,
        request: CreateConversationRequest,
    ) -> Result<Conversation> {
        let permit = by.may(Action::CreateConversation)?;
        if let Some(title) = &request.title {
            check::line("title", title, 0..=500)?;
        }
        if let Some(metadata) = &request.metadata {
            check::object("metadata", metadata, MAX_METADATA)?;
            stated_mode(metadata)?;
        }
        let agent = match request.agent_type.as_deref() {
            Some(agent) => self.private_target(&permit, agent).await?,
            None => None,
        };
        let id = self.env().conversation_id();
        let new = NewConversation { id, title: request.title, metadata: request.metadata, agent };
        let created = self.store().create_conversation(self.context(by), new).await;
        created.map(render::conversation).map_err(about("conversation"))
    }

    /// The agent that a conversation is meant for, if it is private. With a shared one, the conversation is its user's own
    /// until the agent works in it.
    async fn private_target(&self, permit: &Permit<'_>, agent: &str) -> Result<Option<AgentId>> {
        let agent = self.route(permit, AgentSelector::Type(agent)).await?;
        let account = self.store().account(permit.by().tenant, agent.into()).await.map_err(about("agent"))?;
        self.check_caller(permit.by(), &account).await?;
        Ok((account.callers == Callers::Owner).then_some(agent))
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
