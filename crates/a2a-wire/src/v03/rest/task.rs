//! Messages, tasks and events, and their conversion to and from 1.0.

use attache_protocol::{Json, Timestamp};
use serde::{Deserialize, Serialize};

use super::{RestPartV03, is_false};
use crate::{self as new, or_default};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestMessageV03 {
    #[serde(alias = "message_id")]
    pub message_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    #[serde(default, alias = "task_id", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    pub role: new::A2aRole,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<RestPartV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestArtifactV03 {
    #[serde(alias = "artifact_id")]
    pub artifact_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<RestPartV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestTaskStateV03 {
    /// A task of unknown state. 1.0 has no such state, so it counts as working.
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
pub struct RestTaskStatusV03 {
    #[serde(default)]
    pub state: RestTaskStateV03,
    #[serde(default, alias = "update", skip_serializing_if = "Option::is_none")]
    pub message: Option<RestMessageV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestTaskV03 {
    pub id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: RestTaskStatusV03,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<RestArtifactV03>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<RestMessageV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestStatusUpdateV03 {
    #[serde(alias = "task_id")]
    pub task_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub status: RestTaskStatusV03,
    /// The last event of this stream.
    #[serde(default, skip_serializing_if = "is_false")]
    pub r#final: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestArtifactUpdateV03 {
    #[serde(alias = "task_id")]
    pub task_id: String,
    #[serde(default, alias = "context_id", skip_serializing_if = "String::is_empty")]
    pub context_id: String,
    pub artifact: RestArtifactV03,
    #[serde(default, skip_serializing_if = "is_false")]
    pub append: Option<bool>,
    #[serde(default, alias = "last_chunk", skip_serializing_if = "is_false")]
    pub last_chunk: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// An item of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestStreamResponseV03 {
    Task(RestTaskV03),
    #[serde(alias = "msg")]
    Message(RestMessageV03),
    #[serde(alias = "status_update")]
    StatusUpdate(RestStatusUpdateV03),
    #[serde(alias = "artifact_update")]
    ArtifactUpdate(RestArtifactUpdateV03),
}

/// The response of `message:send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestSendMessageResponseV03 {
    Task(RestTaskV03),
    #[serde(alias = "msg")]
    Message(RestMessageV03),
}

// === impl RestMessageV03 ===

impl From<RestMessageV03> for new::Message {
    fn from(old: RestMessageV03) -> Self {
        Self {
            message_id: old.message_id,
            role: old.role,
            parts: old.content.into_iter().map(|RestPartV03(part)| part).collect(),
            context_id: old.context_id,
            task_id: old.task_id,
            metadata: old.metadata,
            extensions: old.extensions,
            reference_task_ids: Vec::new(),
        }
    }
}

impl From<new::Message> for RestMessageV03 {
    fn from(new: new::Message) -> Self {
        Self {
            message_id: new.message_id,
            context_id: new.context_id,
            task_id: new.task_id,
            role: new.role,
            content: new.parts.into_iter().map(RestPartV03).collect(),
            metadata: new.metadata,
            extensions: new.extensions,
        }
    }
}

// === impl RestArtifactV03 ===

impl From<RestArtifactV03> for new::Artifact {
    fn from(old: RestArtifactV03) -> Self {
        let RestArtifactV03 { artifact_id, name, description, parts, metadata, extensions } = old;
        let parts = parts.into_iter().map(|RestPartV03(part)| part).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

impl From<new::Artifact> for RestArtifactV03 {
    fn from(new: new::Artifact) -> Self {
        let new::Artifact { artifact_id, name, description, parts, metadata, extensions } = new;
        let parts = parts.into_iter().map(RestPartV03).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

// === impl RestTaskStatusV03 ===

impl From<RestTaskStatusV03> for new::TaskStatus {
    fn from(old: RestTaskStatusV03) -> Self {
        use new::TaskState as S;
        let state = match old.state {
            RestTaskStateV03::Submitted => S::TaskStateSubmitted,
            RestTaskStateV03::Working | RestTaskStateV03::Unspecified => S::TaskStateWorking,
            RestTaskStateV03::Completed => S::TaskStateCompleted,
            RestTaskStateV03::Failed => S::TaskStateFailed,
            RestTaskStateV03::Cancelled => S::TaskStateCanceled,
            RestTaskStateV03::InputRequired => S::TaskStateInputRequired,
            RestTaskStateV03::Rejected => S::TaskStateRejected,
            RestTaskStateV03::AuthRequired => S::TaskStateAuthRequired,
        };
        Self { state, message: old.message.map(Into::into), timestamp: old.timestamp }
    }
}

impl From<new::TaskStatus> for RestTaskStatusV03 {
    fn from(new: new::TaskStatus) -> Self {
        use new::TaskState as S;
        let state = match new.state {
            S::TaskStateSubmitted => RestTaskStateV03::Submitted,
            S::TaskStateWorking => RestTaskStateV03::Working,
            S::TaskStateCompleted => RestTaskStateV03::Completed,
            S::TaskStateFailed => RestTaskStateV03::Failed,
            S::TaskStateCanceled => RestTaskStateV03::Cancelled,
            S::TaskStateRejected => RestTaskStateV03::Rejected,
            S::TaskStateInputRequired => RestTaskStateV03::InputRequired,
            S::TaskStateAuthRequired => RestTaskStateV03::AuthRequired,
        };
        Self { state, message: new.message.map(Into::into), timestamp: new.timestamp }
    }
}

// === impl RestTaskV03 ===

impl From<RestTaskV03> for new::Task {
    fn from(old: RestTaskV03) -> Self {
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

impl From<new::Task> for RestTaskV03 {
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

// === impl RestStatusUpdateV03 ===

impl From<RestStatusUpdateV03> for new::StatusUpdate {
    fn from(old: RestStatusUpdateV03) -> Self {
        let RestStatusUpdateV03 { task_id, context_id, status, metadata, .. } = old;
        Self { task_id, context_id, status: status.into(), metadata }
    }
}

impl From<new::StatusUpdate> for RestStatusUpdateV03 {
    fn from(new: new::StatusUpdate) -> Self {
        let new::StatusUpdate { task_id, context_id, status, metadata } = new;
        let ends = status.state.is_terminal() || status.state.is_interrupted();
        Self { task_id, context_id, status: status.into(), r#final: Some(ends), metadata }
    }
}

// === impl RestArtifactUpdateV03 ===

impl From<RestArtifactUpdateV03> for new::ArtifactUpdate {
    fn from(old: RestArtifactUpdateV03) -> Self {
        let RestArtifactUpdateV03 { task_id, context_id, artifact, append, last_chunk, metadata } = old;
        Self { task_id, context_id, artifact: artifact.into(), append, last_chunk, metadata }
    }
}

impl From<new::ArtifactUpdate> for RestArtifactUpdateV03 {
    fn from(new: new::ArtifactUpdate) -> Self {
        let new::ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = new;
        Self { task_id, context_id, artifact: artifact.into(), append, last_chunk, metadata }
    }
}

// === impl RestStreamResponseV03 ===

impl From<RestStreamResponseV03> for new::StreamResponse {
    fn from(old: RestStreamResponseV03) -> Self {
        match old {
            RestStreamResponseV03::Task(task) => Self::Task(task.into()),
            RestStreamResponseV03::Message(message) => Self::Message(message.into()),
            RestStreamResponseV03::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            RestStreamResponseV03::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

impl From<new::StreamResponse> for RestStreamResponseV03 {
    fn from(new: new::StreamResponse) -> Self {
        match new {
            new::StreamResponse::Task(task) => Self::Task(task.into()),
            new::StreamResponse::Message(message) => Self::Message(message.into()),
            new::StreamResponse::StatusUpdate(update) => Self::StatusUpdate(update.into()),
            new::StreamResponse::ArtifactUpdate(update) => Self::ArtifactUpdate(update.into()),
        }
    }
}

// === impl RestSendMessageResponseV03 ===

impl From<RestSendMessageResponseV03> for new::SendMessageResponse {
    fn from(old: RestSendMessageResponseV03) -> Self {
        match old {
            RestSendMessageResponseV03::Task(task) => Self::Task(task.into()),
            RestSendMessageResponseV03::Message(message) => Self::Message(message.into()),
        }
    }
}

impl From<new::SendMessageResponse> for RestSendMessageResponseV03 {
    fn from(new: new::SendMessageResponse) -> Self {
        match new {
            new::SendMessageResponse::Task(task) => Self::Task(task.into()),
            new::SendMessageResponse::Message(message) => Self::Message(message.into()),
        }
    }
}
