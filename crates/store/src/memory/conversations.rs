//! Conversations, their messages, and the artifacts of their workspaces.

use std::collections::BTreeMap;

use attache_protocol::{ArtifactId, ConversationId, RunId, TenantId, WorkspaceId};

use super::{
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    Error, Result, WriteContext, entry,
    record::{
        ArtifactRecord, ConversationRecord, ListPage, MessageRecord, NewArtifact, NewConversation, NewMessage,
        Pagination, SpokenBy,
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_conversation(
        &mut self,
        context: &WriteContext,
        new: NewConversation,
    ) -> Result<ConversationRecord> {
        self.known_tenant(context.tenant)?;
        let NewConversation { id, title, metadata, agent } = new;
        let (user, created_at) = (context.user, context.at);
        let agents: BTreeMap<_, _> = agent.map(|agent| (agent, context.at)).into_iter().collect();
        self.conversation_agents.insert(id, agents.clone());
        let spoken_by = SpokenBy::default();
        let conversation = ConversationRecord { id, title, metadata, user, agents, spoken_by, created_at };
        self.conversations.insert(id, (context.tenant, conversation));
        self.append(context.tenant, context.at, &context.actor, entry::conversation_created(id));
        self.conversation(context.tenant, id)
    }

    pub(super) fn conversation(&self, tenant: TenantId, id: ConversationId) -> Result<ConversationRecord> {
        if let Some((owner, conversation)) = self.conversations.get(&id) {
            return if *owner == tenant { Ok(self.shown_conversation(conversation)) } else { Err(Error::NotFound) };
        }
        let record = &self.runs[self.place(tenant, RunId::from_uuid(id.uuid()))?].record;
        if record.conversation != id {
            return Err(Error::NotFound);
        }
        let (user, created_at, agents) = (record.user, record.created_at, BTreeMap::new());
        let spoken_by = SpokenBy::default();
        let own = ConversationRecord { id, title: None, metadata: None, user, agents, spoken_by, created_at };
        Ok(self.shown_conversation(&own))
    }

    /// With its agents, and whoever else spoke in it.
    fn shown_conversation(&self, conversation: &ConversationRecord) -> ConversationRecord {
        let agents = self.conversation_agents.get(&conversation.id).cloned().unwrap_or_default();
        let spoken_by = match self.conversations_of_others.contains(&conversation.id) {
            true => SpokenBy::Others,
            false => SpokenBy::User,
        };
        ConversationRecord { agents, spoken_by, ..conversation.clone() }
    }

    pub(super) fn conversations(&self, tenant: TenantId, page: &Pagination) -> Result<ListPage<ConversationRecord>> {
        let items = self.conversations.iter().rev().filter(|(_, (owner, _))| *owner == tenant);
        let items = items.map(|(place, (_, conversation))| (place, self.shown_conversation(conversation)));
        page::cut(items, PageOrder::Descending, page)
    }

    pub(super) fn add_message(&mut self, context: &WriteContext, new: NewMessage) -> Result<MessageRecord> {
        self.conversation(context.tenant, new.conversation)?;
        let NewMessage { id, conversation, role, text, metadata } = new;
        let message = MessageRecord { id, role, author: context.actor.clone(), text, metadata, created_at: context.at };
        self.messages.insert(id, (conversation, message.clone()));
        self.append(context.tenant, context.at, &context.actor, entry::message_added(conversation, id));
        Ok(message)
    }

    pub(super) fn messages(
        &self,
        tenant: TenantId,
        conversation: ConversationId,
        page: &Pagination,
    ) -> Result<ListPage<MessageRecord>> {
        self.conversation(tenant, conversation)?;
        let items = self.messages.iter().filter(|(_, (within, _))| *within == conversation);
        page::cut(items.map(|(place, (_, message))| (place, message.clone())), PageOrder::Ascending, page)
    }

    pub(super) fn add_artifact(&mut self, context: &WriteContext, new: NewArtifact) -> Result<ArtifactRecord> {
        self.conversation(context.tenant, new.workspace.conversation())?;
        let NewArtifact { id, workspace, name, media_type, size, blake3 } = new;
        let created_at = context.at;
        let artifact = ArtifactRecord { id, workspace, name, media_type, size, blake3, produced_by: None, created_at };
        self.append(context.tenant, context.at, &context.actor, entry::artifact_changed(&artifact));
        self.artifacts.insert(id, (context.tenant, artifact.clone()));
        Ok(artifact)
    }

    pub(super) fn artifact(&self, tenant: TenantId, id: ArtifactId) -> Result<ArtifactRecord> {
        let (owner, artifact) = self.artifacts.get(&id).ok_or(Error::NotFound)?;
        if *owner == tenant { Ok(artifact.clone()) } else { Err(Error::NotFound) }
    }

    pub(super) fn artifacts(
        &self,
        tenant: TenantId,
        workspace: WorkspaceId,
        page: &Pagination,
    ) -> Result<ListPage<ArtifactRecord>> {
        self.conversation(tenant, workspace.conversation())?;
        let items = self.artifacts.iter().rev().filter(|(_, (_, artifact))| artifact.workspace == workspace);
        page::cut(items.map(|(place, (_, artifact))| (place, artifact.clone())), PageOrder::Descending, page)
    }
}
