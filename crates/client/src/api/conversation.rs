//! Conversations and their messages.

use attache_protocol::{
    ConversationId,
    wire::conversation::{
        AddMessageRequest, Conversation, ConversationList, ConversationMessage, CreateConversationRequest, MessageList,
    },
};

use reqwest::Method;

use crate::{HubClient, PageQuery, Result, hub::HubRequest};

// === impl HubClient ===

impl HubClient {
    pub async fn create_conversation(&self, request: &CreateConversationRequest) -> Result<Conversation> {
        self.post(self.api(&["conversations"]), request).await
    }

    pub async fn conversations(&self, page: &PageQuery) -> Result<ConversationList> {
        let mut url = self.api(&["conversations"]);
        page.write(&mut url);
        self.get(url).await
    }

    pub async fn conversation(&self, conversation: ConversationId) -> Result<Conversation> {
        self.get(self.api(&["conversations", &conversation.to_string()])).await
    }

    /// Deletes a conversation with its runs, messages and artifacts.
    pub async fn delete_conversation(&self, conversation: ConversationId) -> Result<()> {
        let url = self.api(&["conversations", &conversation.to_string()]);
        self.send(&HubRequest::new(Method::DELETE, url)).await.map(drop)
    }

    pub async fn messages(&self, conversation: ConversationId, page: &PageQuery) -> Result<MessageList> {
        let mut url = self.api(&["conversations", &conversation.to_string(), "messages"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Keeps a message in the conversation. A message never starts work; a run does.
    pub async fn add_message(
        &self,
        conversation: ConversationId,
        request: &AddMessageRequest,
    ) -> Result<ConversationMessage> {
        self.post(self.api(&["conversations", &conversation.to_string(), "messages"]), request).await
    }
}
