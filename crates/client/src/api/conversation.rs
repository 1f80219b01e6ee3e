//! Conversations and their messages.

use attache_protocol::{
    ConversationId,
    wire::conversation::{
        AddMessageRequest, Conversation, ConversationList, CreateConversationRequest, Message, MessageList,
    },
};

use reqwest::Method;

use crate::{Hub, Page, Result, hub::Ask};

// === impl Hub ===

impl Hub {
    pub async fn create_conversation(&self, request: &CreateConversationRequest) -> Result<Conversation> {
        self.post(self.api(&["conversations"]), request).await
    }

    pub async fn conversations(&self, page: &Page) -> Result<ConversationList> {
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
        self.send(&Ask::new(Method::DELETE, url)).await.map(drop)
    }

    pub async fn messages(&self, conversation: ConversationId, page: &Page) -> Result<MessageList> {
        let mut url = self.api(&["conversations", &conversation.to_string(), "messages"]);
        page.write(&mut url);
        self.get(url).await
    }

    /// Keeps a message in the conversation. A message never starts work; a run does.
    pub async fn add_message(&self, conversation: ConversationId, request: &AddMessageRequest) -> Result<Message> {
        self.post(self.api(&["conversations", &conversation.to_string(), "messages"]), request).await
    }
}
