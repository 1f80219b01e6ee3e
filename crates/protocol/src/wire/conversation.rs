//! Conversations and their messages.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ConversationId, Json, RunId, Timestamp, WorkspaceId};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateConversationRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Any object. Its `instructions` are passed to the agents of this conversation. Its `permission_mode` applies to runs
    /// for which none was chosen, if it is stricter than the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    /// The agent it is meant for, as in a call. If the agent is private, so is the conversation, from the beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_type: Option<String>,
    /// The session of that agent's host that its runs in this conversation continue: an id, or `last`. Only for the agent's
    /// owner in person. A conversation that already continues it is returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_session: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Conversation {
    pub conversation_id: ConversationId,
    pub workspace_id: WorkspaceId,
    pub title: Option<String>,
    pub metadata: Option<Json>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversationList {
    pub conversations: Vec<Conversation>,
    pub next_cursor: Option<String>,
}

/// A message is stored in the conversation and does not start a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMessageRequest {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = MessageRole)]
pub enum MessageRole {
    User,
    Agent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConversationMessage {
    /// `msg_…`, or the run's id with `/input` or `/result` for a run's messages.
    pub message_id: String,
    pub role: MessageRole,
    pub author: String,
    pub text: String,
    pub metadata: Option<Json>,
    pub task_run_id: Option<RunId>,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MessageList {
    pub messages: Vec<ConversationMessage>,
    pub next_cursor: Option<String>,
}
