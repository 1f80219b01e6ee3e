//! Conversations: the boundary of context.

use attache_protocol::{
    AgentId, ConversationId, Json,
    json::Members,
    wire::{
        account::Callers,
        conversation::{Conversation, ConversationList, CreateConversationRequest},
    },
};
use attache_store::record::{ConversationRecord, NewConversation};

use crate::{
    Error, Handle, Principal, Result, check,
    control::{PageRequest, host_session::SessionToContinue, route::AgentSelector, run_mode::stated_mode},
    error::{about, about_list},
    identity::{Action, Permit},
    render,
    visible_page::VisiblePage,
};

pub(crate) const MAX_METADATA: usize = 64 * 1024;

/// The member of a conversation's metadata with what every run in it is told.
const INSTRUCTIONS: &str = "instructions";
/// Says `false` if its user didn't write the instructions in person. Only the hub sets it.
const IN_PERSON: &str = "instructions_in_person";

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
            check_members(metadata)?;
        }
        let session = self.session_to_continue(&permit, &request).await?;
        if let Some(conversation) = session.as_ref().and_then(SessionToContinue::conversation) {
            return self.conversation(by, conversation).await;
        }
        let agent = match request.agent_type.as_deref() {
            Some(agent) => self.private_target(&permit, agent).await?,
            None => None,
        };
        let id = self.env().conversation_id();
        let (title, metadata) = match &session {
            Some(session) => {
                (request.title.or_else(|| session.title()), Some(session.added_to(request.metadata.as_ref())))
            }
            None => (request.title, request.metadata),
        };
        let metadata = metadata.map(|metadata| signed(by, metadata));
        let new = NewConversation { id, title, metadata, agent };
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
        let (mut reach, mut visible) = (self.private_work(by), VisiblePage::new(page.page()?));
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("conversation", &asked);
            let listed = self.store().conversations(by.tenant, asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for conversation in &listed.items {
                seen.push(reach.sees_conversation(conversation).await?);
            }
            visible.take(listed, &seen);
        }
        let (conversations, next_cursor) = visible.finish();
        Ok(ConversationList {
            conversations: conversations.into_iter().map(render::conversation).collect(),
            next_cursor,
        })
    }
}

/// Members that only the hub sets.
fn check_members(metadata: &Json) -> Result<()> {
    match metadata.parse::<Members>().is_ok_and(|members| members.find(IN_PERSON).is_some()) {
        true => Err(Error::invalid("metadata.instructions_in_person", "can't be set")),
        false => Ok(()),
    }
}

/// Runs that an agent's owner starts in person are told the instructions of their conversation. A key of theirs that can do
/// less than they may doesn't speak to those.
fn signed(by: &Principal, metadata: Json) -> Json {
    match metadata.parse::<Members>() {
        Ok(mut members) if members.find(INSTRUCTIONS).is_some() && !by.is_in_person() => {
            members.0.push((IN_PERSON.to_owned(), Json::of(&false)));
            Json::of(&members)
        }
        Ok(_) | Err(_) => metadata,
    }
}

/// Whether a conversation's instructions, if there are any, are those of its user in person.
pub(super) fn is_instructed_in_person(conversation: &ConversationRecord) -> bool {
    let members = conversation.metadata.as_ref().and_then(|metadata| metadata.parse::<Members>().ok());
    members.is_none_or(|members| members.find(IN_PERSON).is_none())
}
