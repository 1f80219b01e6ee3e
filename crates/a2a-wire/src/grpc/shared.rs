//! Messages that both versions share: artifacts, tasks, updates and their wrappers.

use super::{
    exact_json::{read_metadata, write_metadata},
    list, required, some_list, text, truth, v1, v03, written,
};
use crate::{
    Artifact, ArtifactUpdate, InvalidField, SendMessageResponse, StatusUpdate, StreamResponse, Task,
    invalid_field::WithinField as _,
};

/// Messages that differ only in their package and in what it calls a message.
macro_rules! shared {
    ($proto:ident, $message:ident) => {
        impl TryFrom<$proto::Artifact> for Artifact {
            type Error = InvalidField;

            fn try_from(artifact: $proto::Artifact) -> Result<Self, InvalidField> {
                Ok(Self {
                    artifact_id: artifact.artifact_id,
                    name: text(artifact.name),
                    description: text(artifact.description),
                    parts: list("parts", artifact.parts)?,
                    metadata: read_metadata(artifact.metadata)?,
                    extensions: artifact.extensions,
                })
            }
        }

        impl From<Artifact> for $proto::Artifact {
            fn from(artifact: Artifact) -> Self {
                Self {
                    artifact_id: artifact.artifact_id,
                    name: artifact.name.unwrap_or_default(),
                    description: artifact.description.unwrap_or_default(),
                    parts: written(artifact.parts),
                    metadata: write_metadata(artifact.metadata),
                    extensions: artifact.extensions,
                }
            }
        }

        impl TryFrom<$proto::Task> for Task {
            type Error = InvalidField;

            fn try_from(task: $proto::Task) -> Result<Self, InvalidField> {
                Ok(Self {
                    id: task.id,
                    context_id: task.context_id,
                    status: required("status", task.status)?,
                    artifacts: some_list("artifacts", task.artifacts)?,
                    history: some_list("history", task.history)?,
                    metadata: read_metadata(task.metadata)?,
                })
            }
        }

        impl From<Task> for $proto::Task {
            fn from(task: Task) -> Self {
                Self {
                    id: task.id,
                    context_id: task.context_id,
                    status: Some(task.status.into()),
                    artifacts: written(task.artifacts.unwrap_or_default()),
                    history: written(task.history.unwrap_or_default()),
                    metadata: write_metadata(task.metadata),
                }
            }
        }

        impl TryFrom<$proto::TaskStatusUpdateEvent> for StatusUpdate {
            type Error = InvalidField;

            fn try_from(update: $proto::TaskStatusUpdateEvent) -> Result<Self, InvalidField> {
                Ok(Self {
                    task_id: update.task_id,
                    context_id: update.context_id,
                    status: required("status", update.status)?,
                    metadata: read_metadata(update.metadata)?,
                })
            }
        }

        impl TryFrom<$proto::TaskArtifactUpdateEvent> for ArtifactUpdate {
            type Error = InvalidField;

            fn try_from(update: $proto::TaskArtifactUpdateEvent) -> Result<Self, InvalidField> {
                Ok(Self {
                    task_id: update.task_id,
                    context_id: update.context_id,
                    artifact: required("artifact", update.artifact)?,
                    append: truth(update.append),
                    last_chunk: truth(update.last_chunk),
                    metadata: read_metadata(update.metadata)?,
                })
            }
        }

        impl From<ArtifactUpdate> for $proto::TaskArtifactUpdateEvent {
            fn from(update: ArtifactUpdate) -> Self {
                Self {
                    task_id: update.task_id,
                    context_id: update.context_id,
                    artifact: Some(update.artifact.into()),
                    append: update.append.unwrap_or_default(),
                    last_chunk: update.last_chunk.unwrap_or_default(),
                    metadata: write_metadata(update.metadata),
                }
            }
        }

        impl TryFrom<$proto::StreamResponse> for StreamResponse {
            type Error = InvalidField;

            fn try_from(response: $proto::StreamResponse) -> Result<Self, InvalidField> {
                use $proto::stream_response::Payload as P;
                match response.payload {
                    Some(P::Task(task)) => task.try_into().within("task").map(Self::Task),
                    Some(P::$message(message)) => message.try_into().within("message").map(Self::Message),
                    Some(P::StatusUpdate(update)) => update.try_into().within("status_update").map(Self::StatusUpdate),
                    Some(P::ArtifactUpdate(update)) => {
                        update.try_into().within("artifact_update").map(Self::ArtifactUpdate)
                    }
                    None => Err(InvalidField::new("payload", "is missing")),
                }
            }
        }

        impl From<StreamResponse> for $proto::StreamResponse {
            fn from(response: StreamResponse) -> Self {
                use $proto::stream_response::Payload as P;
                let payload = match response {
                    StreamResponse::Task(task) => P::Task(task.into()),
                    StreamResponse::Message(message) => P::$message(message.into()),
                    StreamResponse::StatusUpdate(update) => P::StatusUpdate(update.into()),
                    StreamResponse::ArtifactUpdate(update) => P::ArtifactUpdate(update.into()),
                };
                Self { payload: Some(payload) }
            }
        }

        impl TryFrom<$proto::SendMessageResponse> for SendMessageResponse {
            type Error = InvalidField;

            fn try_from(response: $proto::SendMessageResponse) -> Result<Self, InvalidField> {
                use $proto::send_message_response::Payload as P;
                match response.payload {
                    Some(P::Task(task)) => task.try_into().within("task").map(Self::Task),
                    Some(P::$message(message)) => message.try_into().within("message").map(Self::Message),
                    None => Err(InvalidField::new("payload", "is missing")),
                }
            }
        }

        impl From<SendMessageResponse> for $proto::SendMessageResponse {
            fn from(response: SendMessageResponse) -> Self {
                use $proto::send_message_response::Payload as P;
                let payload = match response {
                    SendMessageResponse::Task(task) => P::Task(task.into()),
                    SendMessageResponse::Message(message) => P::$message(message.into()),
                };
                Self { payload: Some(payload) }
            }
        }
    };
}

shared!(v1, Message);
shared!(v03, Msg);
