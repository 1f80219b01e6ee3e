//! Messages, tasks and events, and how they become those of 1.0 and back.

use serde::{Deserialize, Serialize};

use super::{
    super::super::{self as new, or_default},
    Part, is_false,
};
use crate::{Json, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    #[serde(alias = "message_id")]
    pub message_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub role: new::Role,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    #[serde(alias = "artifact_id")]
    pub artifact_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Of a peer that cannot say; 1.0 has no such word, and a task whose state is unknown is still at work.
    #[default]
    #[serde(rename = "TASK_STATE_UNSPECIFIED")]
    Unspecified,
    #[serde(rename = "TASK_STATE_SUBMITTED")]
    Submitted,
    #[serde(rename = "TASK_STATE_WORKING")]
    Working,
    #[serde(rename = "TASK_STATE_COMPLETED")]
    Completed,
    #[serde(rename = "TASK_STATE_FAILED")]
    Failed,
    #[serde(rename = "TASK_STATE_CANCELLED", alias = "TASK_STATE_CANCELED")]
    Cancelled,
    #[serde(rename = "TASK_STATE_INPUT_REQUIRED")]
    InputRequired,
    #[serde(rename = "TASK_STATE_REJECTED")]
    Rejected,
    #[serde(rename = "TASK_STATE_AUTH_REQUIRED")]
    AuthRequired,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    #[serde(default)]
    pub state: State,
    #[serde(default, alias = "update", skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: Status,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpdate {
    #[serde(alias = "task_id")]
    pub task_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: Status,
    /// Nothing follows on this stream.
    #[serde(default, skip_serializing_if = "is_false")]
    pub r#final: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactUpdate {
    #[serde(alias = "task_id")]
    pub task_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub artifact: Artifact,
    #[serde(default, skip_serializing_if = "is_false")]
    pub append: Option<bool>,
    #[serde(default, alias = "last_chunk", skip_serializing_if = "is_false")]
    pub last_chunk: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// What a stream brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamResponse {
    Task(Task),
    #[serde(alias = "msg")]
    Message(Message),
    #[serde(alias = "status_update")]
    StatusUpdate(StatusUpdate),
    #[serde(alias = "artifact_update")]
    ArtifactUpdate(ArtifactUpdate),
}

/// What `message:send` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SendMessageResponse {
    Task(Task),
    #[serde(alias = "msg")]
    Message(Message),
}

// === impl Message ===

impl From<Message> for new::Message {
    fn from(old: Message) -> Self {
        Self {
            message_id: old.message_id,
            role: old.role,
            parts: old.content.into_iter().map(|Part(part)| part).collect(),
            context_id: old.context_id,
            task_id: old.task_id,
            metadata: old.metadata,
            extensions: old.extensions,
            reference_task_ids: Vec::new(),
        }
    }
}

impl From<new::Message> for Message {
    fn from(new: new::Message) -> Self {
        Self {
            message_id: new.message_id,
            context_id: new.context_id,
            task_id: new.task_id,
            role: new.role,
            content: new.parts.into_iter().map(Part).collect(),
            metadata: new.metadata,
            extensions: new.extensions,
        }
    }
}

// === impl Artifact ===

impl From<Artifact> for new::Artifact {
    fn from(old: Artifact) -> Self {
        let Artifact { artifact_id, name, description, parts, metadata, extensions } = old;
        let parts = parts.into_iter().map(|Part(part)| part).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

impl From<new::Artifact> for Artifact {
    fn from(new: new::Artifact) -> Self {
        let new::Artifact { artifact_id, name, description, parts, metadata, extensions } = new;
        let parts = parts.into_iter().map(Part).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

// === impl Status ===

impl From<Status> for new::TaskStatus {
    fn from(old: Status) -> Self {
        use new::TaskState as S;
        let state = match old.state {
            State::Submitted => S::TaskStateSubmitted,
            State::Working | State::Unspecified => S::TaskStateWorking,
            State::Completed => S::TaskStateCompleted,
            State::Failed => S::TaskStateFailed,
            State::Cancelled => S::TaskStateCanceled,
            State::InputRequired => S::TaskStateInputRequired,
            State::Rejected => S::TaskStateRejected,
            State::AuthRequired => S::TaskStateAuthRequired,
        };
        Self { state, message: old.message.map(Into::into), timestamp: old.timestamp }
    }
}

impl From<new::TaskStatus> for Status {
    fn from(new: new::TaskStatus) -> Self {
        use new::TaskState as S;
        let state = match new.state {
            S::TaskStateSubmitted => State::Submitted,
            S::TaskStateWorking => State::Working,
            S::TaskStateCompleted => State::Completed,
            S::TaskStateFailed => State::Failed,
            S::TaskStateCanceled => State::Cancelled,
            S::TaskStateRejected => State::Rejected,
            S::TaskStateInputRequired => State::InputRequired,
            S::TaskStateAuthRequired => State::AuthRequired,
        };
        Self { state, message: new.message.map(Into::into), timestamp: new.timestamp }
    }
}

// === impl Task ===

impl From<Task> for new::Task {
    fn from(old: Task) -> Self {
        let artifacts: Vec<_> = old.artifacts.into_iter().map(Into::into).collect();
        let history: Vec<_> = old.history.into_iter().map(Into::into).collect();
        Self {
            id: old.id,
            context_id: old.context_id,
            status: old.status.into(),
            artifacts: (!artifacts.is_empty()).then_some(artifacts),
            history: (!history.is_empty()).then_some(history),
            metadata: old.metadata,
        }
    }
}

impl From<new::Task> for Task {
    fn from(new: new::Task) -> Self {
        Self {
            id: new.id,
            context_id: new.context_id,
            status: new.status.into(),
            artifacts: new.artifacts.unwrap_or_default().into_iter().map(Into::into).collect(),
            history: new.history.unwrap_or_default().into_iter().map(Into::into).collect(),
            metadata: new.metadata,
        }
    }
}

// === impl StatusUpdate ===

impl From<StatusUpdate> for new::StatusUpdate {
    fn from(old: StatusUpdate) -> Self {
        let StatusUpdate { task_id, context_id, status, metadata, .. } = old;
        Self { task_id, context_id, status: status.into(), metadata }
    }
}

impl From<new::StatusUpdate> for StatusUpdate {
    fn from(new: new::StatusUpdate) -> Self {
        let new::StatusUpdate { task_id, context_id, status, metadata } = new;
        let ends = status.state.is_terminal() || status.state.is_interrupted();
        Self { task_id, context_id, status: status.into(), r#final: Some(ends), metadata }
    }
}

// === impl ArtifactUpdate ===

impl From<ArtifactUpdate> for new::ArtifactUpdate {
    fn from(old: ArtifactUpdate) -> Self {
        let ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = old;
        Self { task_id, context_id, artifact: artifact.into(), append, last_chunk, metadata }
    }
}

impl From<new::ArtifactUpdate> for ArtifactUpdate {
    fn from(new: new::ArtifactUpdate) -> Self {
        let new::ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = new;
        Self { task_id, context_id, artifact: artifact.into(), append, last_chunk, metadata }
    }
}

// === impl StreamResponse ===

impl From<StreamResponse> for new::StreamResponse {
    fn from(old: StreamResponse) -> Self {
        match old {
            StreamResponse::Task(task) => Self::Task(task.into()),
            StreamResponse::Message(message) => Self::Message(message.into()),
            StreamResponse::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            StreamResponse::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

impl From<new::StreamResponse> for StreamResponse {
    fn from(new: new::StreamResponse) -> Self {
        match new {
            new::StreamResponse::Task(task) => Self::Task(task.into()),
            new::StreamResponse::Message(message) => Self::Message(message.into()),
            new::StreamResponse::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            new::StreamResponse::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

// === impl SendMessageResponse ===

impl From<SendMessageResponse> for new::SendMessageResponse {
    fn from(old: SendMessageResponse) -> Self {
        match old {
            SendMessageResponse::Task(task) => Self::Task(task.into()),
            SendMessageResponse::Message(message) => Self::Message(message.into()),
        }
    }
}

impl From<new::SendMessageResponse> for SendMessageResponse {
    fn from(new: new::SendMessageResponse) -> Self {
        match new {
            new::SendMessageResponse::Task(task) => Self::Task(task.into()),
            new::SendMessageResponse::Message(message) => Self::Message(message.into()),
        }
    }
}
