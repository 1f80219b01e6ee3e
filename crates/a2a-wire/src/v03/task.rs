//! Messages, tasks and events of 0.3, and their conversion to and from 1.0.

use attache_protocol::{Json, Timestamp};
use serde::{Deserialize, Serialize};

use super::{ARTIFACT_UPDATE, Kind, MESSAGE, PartV03, STATUS_UPDATE, TASK};
use crate::{self as new, or_default};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum A2aRoleV03 {
    User,
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskStateV03 {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Canceled,
    Failed,
    Rejected,
    AuthRequired,
    /// A task of unknown state. 1.0 has no such state, so it counts as working.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageV03 {
    #[serde(default)]
    pub kind: Kind<MESSAGE>,
    pub message_id: String,
    pub role: A2aRoleV03,
    pub parts: Vec<PartV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub reference_task_ids: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactV03 {
    pub artifact_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub parts: Vec<PartV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatusV03 {
    pub state: TaskStateV03,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskV03 {
    #[serde(default)]
    pub kind: Kind<TASK>,
    pub id: String,
    pub context_id: String,
    pub status: TaskStatusV03,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<ArtifactV03>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<MessageV03>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpdateV03 {
    #[serde(default)]
    pub kind: Kind<STATUS_UPDATE>,
    pub task_id: String,
    pub context_id: String,
    pub status: TaskStatusV03,
    /// The last event of this stream.
    #[serde(default)]
    pub r#final: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactUpdateV03 {
    #[serde(default)]
    pub kind: Kind<ARTIFACT_UPDATE>,
    pub task_id: String,
    pub context_id: String,
    pub artifact: ArtifactV03,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_chunk: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// An item of a stream and, except for updates, a response of `message/send`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamResponseV03 {
    Task(TaskV03),
    Message(MessageV03),
    StatusUpdate(StatusUpdateV03),
    ArtifactUpdate(ArtifactUpdateV03),
}

#[derive(Deserialize)]
struct KindTag {
    kind: String,
}

// === impl StreamResponseV03 ===

impl StreamResponseV03 {
    /// Reads `kind` first, so that everything else is kept as sent.
    pub fn read(json: &Json) -> Result<Self, serde_json::Error> {
        match json.parse::<KindTag>()?.kind.as_str() {
            "message" => json.parse().map(Self::Message),
            "status-update" => json.parse().map(Self::StatusUpdate),
            "artifact-update" => json.parse().map(Self::ArtifactUpdate),
            _ => json.parse().map(Self::Task),
        }
    }
}

impl Serialize for StreamResponseV03 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Task(task) => task.serialize(serializer),
            Self::Message(message) => message.serialize(serializer),
            Self::StatusUpdate(update) => update.serialize(serializer),
            Self::ArtifactUpdate(update) => update.serialize(serializer),
        }
    }
}

impl From<StreamResponseV03> for new::StreamResponse {
    fn from(old: StreamResponseV03) -> Self {
        match old {
            StreamResponseV03::Task(task) => Self::Task(task.into()),
            StreamResponseV03::Message(message) => Self::Message(message.into()),
            StreamResponseV03::StatusUpdate(StatusUpdateV03 { task_id, context_id, status, metadata, .. }) => {
                Self::StatusUpdate(new::StatusUpdate { task_id, context_id, status: status.into(), metadata })
            }
            StreamResponseV03::ArtifactUpdate(update) => {
                let ArtifactUpdateV03 { task_id, context_id, artifact, append, last_chunk, metadata, .. } = update;
                let artifact = artifact.into();
                Self::ArtifactUpdate(new::ArtifactUpdate {
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                })
            }
        }
    }
}

impl From<new::StreamResponse> for StreamResponseV03 {
    fn from(new: new::StreamResponse) -> Self {
        match new {
            new::StreamResponse::Task(task) => Self::Task(task.into()),
            new::StreamResponse::Message(message) => Self::Message(message.into()),
            new::StreamResponse::StatusUpdate(update) => {
                let new::StatusUpdate { task_id, context_id, status, metadata } = update;
                let ends = status.state.is_terminal() || status.state.is_interrupted();
                let status = status.into();
                Self::StatusUpdate(StatusUpdateV03 { kind: Kind, task_id, context_id, status, r#final: ends, metadata })
            }
            new::StreamResponse::ArtifactUpdate(update) => {
                let new::ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = update;
                let artifact = artifact.into();
                let kind = Kind;
                Self::ArtifactUpdate(ArtifactUpdateV03 {
                    kind,
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                })
            }
        }
    }
}

// === impl MessageV03 ===

impl From<MessageV03> for new::Message {
    fn from(old: MessageV03) -> Self {
        Self {
            message_id: old.message_id,
            role: match old.role {
                A2aRoleV03::User => new::A2aRole::User,
                A2aRoleV03::Agent => new::A2aRole::Agent,
            },
            parts: parts(old.parts),
            context_id: old.context_id,
            task_id: old.task_id,
            metadata: old.metadata,
            extensions: old.extensions,
            reference_task_ids: old.reference_task_ids,
        }
    }
}

impl From<new::Message> for MessageV03 {
    fn from(new: new::Message) -> Self {
        Self {
            kind: Kind,
            message_id: new.message_id,
            role: match new.role {
                new::A2aRole::User => A2aRoleV03::User,
                new::A2aRole::Agent => A2aRoleV03::Agent,
            },
            parts: new.parts.into_iter().map(PartV03).collect(),
            context_id: new.context_id,
            task_id: new.task_id,
            metadata: new.metadata,
            extensions: new.extensions,
            reference_task_ids: new.reference_task_ids,
        }
    }
}

// === impl ArtifactV03 ===

impl From<ArtifactV03> for new::Artifact {
    fn from(old: ArtifactV03) -> Self {
        let ArtifactV03 { artifact_id, name, description, parts: old, metadata, extensions } = old;
        Self { artifact_id, name, description, parts: parts(old), metadata, extensions }
    }
}

impl From<new::Artifact> for ArtifactV03 {
    fn from(new: new::Artifact) -> Self {
        let new::Artifact { artifact_id, name, description, parts, metadata, extensions } = new;
        let parts = parts.into_iter().map(PartV03).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

fn parts(old: Vec<PartV03>) -> Vec<new::Part> {
    old.into_iter().map(|PartV03(part)| part).collect()
}

// === impl TaskStatusV03 ===

impl From<TaskStatusV03> for new::TaskStatus {
    fn from(old: TaskStatusV03) -> Self {
        use new::TaskState as S;
        let state = match old.state {
            TaskStateV03::Submitted => S::TaskStateSubmitted,
            TaskStateV03::Working | TaskStateV03::Unknown => S::TaskStateWorking,
            TaskStateV03::InputRequired => S::TaskStateInputRequired,
            TaskStateV03::Completed => S::TaskStateCompleted,
            TaskStateV03::Canceled => S::TaskStateCanceled,
            TaskStateV03::Failed => S::TaskStateFailed,
            TaskStateV03::Rejected => S::TaskStateRejected,
            TaskStateV03::AuthRequired => S::TaskStateAuthRequired,
        };
        Self { state, message: old.message.map(Into::into), timestamp: old.timestamp }
    }
}

impl From<new::TaskStatus> for TaskStatusV03 {
    fn from(new: new::TaskStatus) -> Self {
        use new::TaskState as S;
        let state = match new.state {
            S::TaskStateSubmitted => TaskStateV03::Submitted,
            S::TaskStateWorking => TaskStateV03::Working,
            S::TaskStateCompleted => TaskStateV03::Completed,
            S::TaskStateFailed => TaskStateV03::Failed,
            S::TaskStateCanceled => TaskStateV03::Canceled,
            S::TaskStateRejected => TaskStateV03::Rejected,
            S::TaskStateInputRequired => TaskStateV03::InputRequired,
            S::TaskStateAuthRequired => TaskStateV03::AuthRequired,
        };
        Self { state, message: new.message.map(Into::into), timestamp: new.timestamp }
    }
}

// === impl TaskV03 ===

impl From<TaskV03> for new::Task {
    fn from(old: TaskV03) -> Self {
        Self {
            id: old.id,
            context_id: old.context_id,
            status: old.status.into(),
            artifacts: old.artifacts.map(|artifacts| artifacts.into_iter().map(Into::into).collect()),
            history: old.history.map(|history| history.into_iter().map(Into::into).collect()),
            metadata: old.metadata,
        }
    }
}

impl From<new::Task> for TaskV03 {
    fn from(new: new::Task) -> Self {
        Self {
            kind: Kind,
            id: new.id,
            context_id: new.context_id,
            status: new.status.into(),
            artifacts: new.artifacts.map(|artifacts| artifacts.into_iter().map(Into::into).collect()),
            history: new.history.map(|history| history.into_iter().map(Into::into).collect()),
            metadata: new.metadata,
        }
    }
}
