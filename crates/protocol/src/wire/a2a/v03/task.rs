//! Messages, tasks and events of 0.3, and how they become those of 1.0 and back.

use serde::{Deserialize, Serialize};

use super::{
    super::{self as new, or_default},
    ARTIFACT_UPDATE, Kind, MESSAGE, Part, STATUS_UPDATE, TASK,
};
use crate::{Json, Timestamp};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Agent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Canceled,
    Failed,
    Rejected,
    AuthRequired,
    /// Of a peer that cannot say; 1.0 has no such word, and a task whose state is unknown is still at work.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    #[serde(default)]
    pub kind: Kind<MESSAGE>,
    pub message_id: String,
    pub role: Role,
    pub parts: Vec<Part>,
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
pub struct Artifact {
    pub artifact_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub state: State,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    #[serde(default)]
    pub kind: Kind<TASK>,
    pub id: String,
    pub context_id: String,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<Artifact>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<Message>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusUpdate {
    #[serde(default)]
    pub kind: Kind<STATUS_UPDATE>,
    pub task_id: String,
    pub context_id: String,
    pub status: Status,
    /// Nothing follows on this stream.
    #[serde(default)]
    pub r#final: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactUpdate {
    #[serde(default)]
    pub kind: Kind<ARTIFACT_UPDATE>,
    pub task_id: String,
    pub context_id: String,
    pub artifact: Artifact,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_chunk: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// What a stream brings, and, but for the updates, what `message/send` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    Task(Task),
    Message(Message),
    StatusUpdate(StatusUpdate),
    ArtifactUpdate(ArtifactUpdate),
}

#[derive(Deserialize)]
struct Tag {
    kind: String,
}

// === impl Stream ===

impl Stream {
    /// The `kind` decides. It is looked at first, so that everything else stays as it came.
    pub fn read(json: &Json) -> Result<Self, serde_json::Error> {
        match json.parse::<Tag>()?.kind.as_str() {
            "message" => json.parse().map(Self::Message),
            "status-update" => json.parse().map(Self::StatusUpdate),
            "artifact-update" => json.parse().map(Self::ArtifactUpdate),
            _ => json.parse().map(Self::Task),
        }
    }
}

impl Serialize for Stream {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Task(task) => task.serialize(serializer),
            Self::Message(message) => message.serialize(serializer),
            Self::StatusUpdate(update) => update.serialize(serializer),
            Self::ArtifactUpdate(update) => update.serialize(serializer),
        }
    }
}

impl From<Stream> for new::StreamResponse {
    fn from(old: Stream) -> Self {
        match old {
            Stream::Task(task) => Self::Task(task.into()),
            Stream::Message(message) => Self::Message(message.into()),
            Stream::StatusUpdate(StatusUpdate { task_id, context_id, status, metadata, .. }) => {
                Self::StatusUpdate(new::StatusUpdate { task_id, context_id, status: status.into(), metadata })
            }
            Stream::ArtifactUpdate(update) => {
                let ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata, .. } = update;
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

impl From<new::StreamResponse> for Stream {
    fn from(new: new::StreamResponse) -> Self {
        match new {
            new::StreamResponse::Task(task) => Self::Task(task.into()),
            new::StreamResponse::Message(message) => Self::Message(message.into()),
            new::StreamResponse::StatusUpdate(update) => {
                let new::StatusUpdate { task_id, context_id, status, metadata } = update;
                let ends = status.state.is_terminal() || status.state.is_interrupted();
                let status = status.into();
                Self::StatusUpdate(StatusUpdate { kind: Kind, task_id, context_id, status, r#final: ends, metadata })
            }
            new::StreamResponse::ArtifactUpdate(update) => {
                let new::ArtifactUpdate { task_id, context_id, artifact, append, last_chunk, metadata } = update;
                let artifact = artifact.into();
                let kind = Kind;
                Self::ArtifactUpdate(ArtifactUpdate {
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

// === impl Message ===

impl From<Message> for new::Message {
    fn from(old: Message) -> Self {
        Self {
            message_id: old.message_id,
            role: match old.role {
                Role::User => new::Role::User,
                Role::Agent => new::Role::Agent,
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

impl From<new::Message> for Message {
    fn from(new: new::Message) -> Self {
        Self {
            kind: Kind,
            message_id: new.message_id,
            role: match new.role {
                new::Role::User => Role::User,
                new::Role::Agent => Role::Agent,
            },
            parts: new.parts.into_iter().map(Part).collect(),
            context_id: new.context_id,
            task_id: new.task_id,
            metadata: new.metadata,
            extensions: new.extensions,
            reference_task_ids: new.reference_task_ids,
        }
    }
}

// === impl Artifact ===

impl From<Artifact> for new::Artifact {
    fn from(old: Artifact) -> Self {
        let Artifact { artifact_id, name, description, parts: old, metadata, extensions } = old;
        Self { artifact_id, name, description, parts: parts(old), metadata, extensions }
    }
}

impl From<new::Artifact> for Artifact {
    fn from(new: new::Artifact) -> Self {
        let new::Artifact { artifact_id, name, description, parts, metadata, extensions } = new;
        let parts = parts.into_iter().map(Part).collect();
        Self { artifact_id, name, description, parts, metadata, extensions }
    }
}

fn parts(old: Vec<Part>) -> Vec<new::Part> {
    old.into_iter().map(|Part(part)| part).collect()
}

// === impl Status ===

impl From<Status> for new::TaskStatus {
    fn from(old: Status) -> Self {
        use new::TaskState as S;
        let state = match old.state {
            State::Submitted => S::TaskStateSubmitted,
            State::Working | State::Unknown => S::TaskStateWorking,
            State::InputRequired => S::TaskStateInputRequired,
            State::Completed => S::TaskStateCompleted,
            State::Canceled => S::TaskStateCanceled,
            State::Failed => S::TaskStateFailed,
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
            S::TaskStateCanceled => State::Canceled,
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

impl From<new::Task> for Task {
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
