//! Parts, messages and task status.

use prost_types::{Struct, Value, value::Kind};

use super::super::{
    NOT_BASE64,
    exact_json::{GrpcJson, OriginalJson, read_metadata, write_metadata},
    list, optional, read_time, text, v03, write_time, written,
};
use crate::{
    A2aRole, InvalidField, Message, Part, PartContent, StatusUpdate, TaskState, TaskStatus,
    v03::{file_bytes, unwrapped, wrapped},
};

// === impl Part ===

impl TryFrom<v03::Part> for Part {
    type Error = InvalidField;

    fn try_from(part: v03::Part) -> Result<Self, InvalidField> {
        use v03::{file_part::File, part::Part as P};
        let v03::Part { metadata, part } = part;
        let (mut filename, mut media_type) = (None, None);
        let (content, data) = match part {
            Some(P::Text(text)) => (Some(PartContent::Text(text)), None),
            Some(P::File(v03::FilePart { mime_type, name, file })) => {
                (filename, media_type) = (text(name), text(mime_type));
                let content = match file {
                    Some(File::FileWithUri(uri)) => PartContent::Url(uri),
                    Some(File::FileWithBytes(bytes)) => PartContent::Raw(file_bytes::from_old_file(bytes)),
                    None => {
                        return Err(InvalidField::new("file", "must have one of file_with_uri and file_with_bytes"));
                    }
                };
                (Some(content), None)
            }
            Some(P::Data(v03::DataPart { data })) => {
                (None, Some(Value { kind: Some(Kind::StructValue(data.unwrap_or_default())) }))
            }
            None => (None, None),
        };
        let OriginalJson { metadata, data } = GrpcJson { metadata, data }.read()?;
        let content = content
            .or(data.map(|data| PartContent::Data(unwrapped(data))))
            .ok_or_else(|| InvalidField::itself("must have one of text, file and data"))?;
        Ok(Self { content, filename, media_type, metadata })
    }
}

impl From<Part> for v03::Part {
    fn from(part: Part) -> Self {
        use v03::{file_part::File, part::Part as P};
        let Part { content, filename, media_type, metadata } = part;
        let file = |file| {
            let (mime_type, name) = (media_type.unwrap_or_default(), filename.unwrap_or_default());
            Some(P::File(v03::FilePart { mime_type, name, file: Some(file) }))
        };
        let (part, data) = match content {
            PartContent::Text(text) => (Some(P::Text(text)), None),
            PartContent::Raw(text) => {
                let part = match file_bytes::to_old_file(&text) {
                    Some(text) => file(File::FileWithBytes(text.into_bytes())),
                    None => Some(P::Text(NOT_BASE64.to_owned())),
                };
                (part, None)
            }
            PartContent::Url(uri) => (file(File::FileWithUri(uri)), None),
            PartContent::Data(data) => (None, Some(wrapped(&data))),
        };
        let GrpcJson { metadata, data } = OriginalJson { metadata, data }.write();
        let data = data.map(|data| P::Data(v03::DataPart { data: Some(object(data)) }));
        Self { metadata, part: part.or(data) }
    }
}

fn object(value: Value) -> Struct {
    match value.kind {
        Some(Kind::StructValue(object)) => object,
        _ => Struct::default(),
    }
}

// === impl Message ===

impl TryFrom<v03::Message> for Message {
    type Error = InvalidField;

    fn try_from(message: v03::Message) -> Result<Self, InvalidField> {
        let role = match message.role() {
            v03::Role::User => A2aRole::User,
            v03::Role::Agent => A2aRole::Agent,
            v03::Role::Unspecified => return Err(InvalidField::new("role", "must be ROLE_USER or ROLE_AGENT")),
        };
        Ok(Self {
            message_id: message.message_id,
            role,
            parts: list("content", message.content)?,
            context_id: text(message.context_id),
            task_id: text(message.task_id),
            metadata: read_metadata(message.metadata)?,
            extensions: message.extensions,
            reference_task_ids: Vec::new(),
        })
    }
}

impl From<Message> for v03::Message {
    fn from(message: Message) -> Self {
        let role = match message.role {
            A2aRole::User => v03::Role::User,
            A2aRole::Agent => v03::Role::Agent,
        };
        Self {
            message_id: message.message_id,
            context_id: message.context_id.unwrap_or_default(),
            task_id: message.task_id.unwrap_or_default(),
            role: role.into(),
            content: written(message.parts),
            metadata: write_metadata(message.metadata),
            extensions: message.extensions,
        }
    }
}

// === impl TaskStatus ===

impl TryFrom<v03::TaskStatus> for TaskStatus {
    type Error = InvalidField;

    fn try_from(status: v03::TaskStatus) -> Result<Self, InvalidField> {
        use v03::TaskState as S;
        let state = match status.state() {
            S::Submitted => TaskState::TaskStateSubmitted,
            // A task of unknown state counts as working.
            S::Working | S::Unspecified => TaskState::TaskStateWorking,
            S::Completed => TaskState::TaskStateCompleted,
            S::Failed => TaskState::TaskStateFailed,
            S::Cancelled => TaskState::TaskStateCanceled,
            S::Rejected => TaskState::TaskStateRejected,
            S::InputRequired => TaskState::TaskStateInputRequired,
            S::AuthRequired => TaskState::TaskStateAuthRequired,
        };
        let timestamp = status.timestamp.map(|time| read_time("timestamp", time)).transpose()?;
        Ok(Self { state, message: optional("message", status.update)?, timestamp })
    }
}

impl From<TaskStatus> for v03::TaskStatus {
    fn from(status: TaskStatus) -> Self {
        use v03::TaskState as S;
        let state = match status.state {
            TaskState::TaskStateSubmitted => S::Submitted,
            TaskState::TaskStateWorking => S::Working,
            TaskState::TaskStateCompleted => S::Completed,
            TaskState::TaskStateFailed => S::Failed,
            TaskState::TaskStateCanceled => S::Cancelled,
            TaskState::TaskStateRejected => S::Rejected,
            TaskState::TaskStateInputRequired => S::InputRequired,
            TaskState::TaskStateAuthRequired => S::AuthRequired,
        };
        let update = status.message.map(Into::into);
        Self { state: state.into(), update, timestamp: status.timestamp.map(write_time) }
    }
}

// === impl TaskStatusUpdateEvent ===

impl From<StatusUpdate> for v03::TaskStatusUpdateEvent {
    fn from(update: StatusUpdate) -> Self {
        let state = update.status.state;
        Self {
            task_id: update.task_id,
            context_id: update.context_id,
            status: Some(update.status.into()),
            r#final: state.is_terminal() || state.is_interrupted(),
            metadata: write_metadata(update.metadata),
        }
    }
}
