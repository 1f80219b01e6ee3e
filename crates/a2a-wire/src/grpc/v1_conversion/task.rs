//! Parts, messages and task status.

use attache_protocol::wire::base64;

use super::super::{
    NOT_BASE64,
    exact_json::{GrpcJson, OriginalJson, read_metadata, write_metadata},
    list, optional, read_time, text, v1, write_time, written,
};
use crate::{A2aRole, InvalidField, Message, Part, PartContent, StatusUpdate, TaskState, TaskStatus};

// === impl Part ===

impl TryFrom<v1::Part> for Part {
    type Error = InvalidField;

    fn try_from(part: v1::Part) -> Result<Self, InvalidField> {
        use v1::part::Content as C;
        let v1::Part { metadata, filename, media_type, content } = part;
        let (content, data) = match content {
            Some(C::Data(data)) => (None, Some(data)),
            Some(C::Text(text)) => (Some(PartContent::Text(text)), None),
            Some(C::Raw(bytes)) => (Some(PartContent::Raw(base64::encode(&bytes))), None),
            Some(C::Url(url)) => (Some(PartContent::Url(url)), None),
            None => (None, None),
        };
        let OriginalJson { metadata, data } = GrpcJson { metadata, data }.read()?;
        let content = content
            .or(data.map(PartContent::Data))
            .ok_or_else(|| InvalidField::itself("must have one of text, raw, url and data"))?;
        Ok(Self { content, filename: text(filename), media_type: text(media_type), metadata })
    }
}

impl From<Part> for v1::Part {
    fn from(part: Part) -> Self {
        use v1::part::Content as C;
        let Part { content, filename, media_type, metadata } = part;
        let (content, data) = match content {
            PartContent::Data(data) => (None, Some(data)),
            PartContent::Text(text) => (Some(C::Text(text)), None),
            PartContent::Raw(text) => {
                let bytes = base64::decode(&text).map(C::Raw);
                (Some(bytes.unwrap_or_else(|| C::Text(NOT_BASE64.to_owned()))), None)
            }
            PartContent::Url(url) => (Some(C::Url(url)), None),
        };
        let GrpcJson { metadata, data } = OriginalJson { metadata, data }.write();
        Self {
            metadata,
            filename: filename.unwrap_or_default(),
            media_type: media_type.unwrap_or_default(),
            content: content.or(data.map(C::Data)),
        }
    }
}

// === impl Message ===

impl TryFrom<v1::Message> for Message {
    type Error = InvalidField;

    fn try_from(message: v1::Message) -> Result<Self, InvalidField> {
        let role = match message.role() {
            v1::Role::User => A2aRole::User,
            v1::Role::Agent => A2aRole::Agent,
            v1::Role::Unspecified => return Err(InvalidField::new("role", "must be ROLE_USER or ROLE_AGENT")),
        };
        Ok(Self {
            message_id: message.message_id,
            role,
            parts: list("parts", message.parts)?,
            context_id: text(message.context_id),
            task_id: text(message.task_id),
            metadata: read_metadata(message.metadata)?,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        })
    }
}

impl From<Message> for v1::Message {
    fn from(message: Message) -> Self {
        let role = match message.role {
            A2aRole::User => v1::Role::User,
            A2aRole::Agent => v1::Role::Agent,
        };
        Self {
            message_id: message.message_id,
            context_id: message.context_id.unwrap_or_default(),
            task_id: message.task_id.unwrap_or_default(),
            role: role.into(),
            parts: written(message.parts),
            metadata: write_metadata(message.metadata),
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        }
    }
}

// === impl TaskState ===

/// `None` for the unspecified state.
pub(super) const fn read_state(state: v1::TaskState) -> Option<TaskState> {
    use v1::TaskState as S;
    Some(match state {
        S::Unspecified => return None,
        S::Submitted => TaskState::TaskStateSubmitted,
        S::Working => TaskState::TaskStateWorking,
        S::Completed => TaskState::TaskStateCompleted,
        S::Failed => TaskState::TaskStateFailed,
        S::Canceled => TaskState::TaskStateCanceled,
        S::Rejected => TaskState::TaskStateRejected,
        S::InputRequired => TaskState::TaskStateInputRequired,
        S::AuthRequired => TaskState::TaskStateAuthRequired,
    })
}

impl From<TaskState> for v1::TaskState {
    fn from(state: TaskState) -> Self {
        match state {
            TaskState::TaskStateSubmitted => Self::Submitted,
            TaskState::TaskStateWorking => Self::Working,
            TaskState::TaskStateCompleted => Self::Completed,
            TaskState::TaskStateFailed => Self::Failed,
            TaskState::TaskStateCanceled => Self::Canceled,
            TaskState::TaskStateRejected => Self::Rejected,
            TaskState::TaskStateInputRequired => Self::InputRequired,
            TaskState::TaskStateAuthRequired => Self::AuthRequired,
        }
    }
}

// === impl TaskStatus ===

impl TryFrom<v1::TaskStatus> for TaskStatus {
    type Error = InvalidField;

    fn try_from(status: v1::TaskStatus) -> Result<Self, InvalidField> {
        let state =
            read_state(status.state()).ok_or_else(|| InvalidField::new("state", "must be one of TASK_STATE_…"))?;
        let timestamp = status.timestamp.map(|time| read_time("timestamp", time)).transpose()?;
        Ok(Self { state, message: optional("message", status.message)?, timestamp })
    }
}

impl From<TaskStatus> for v1::TaskStatus {
    fn from(status: TaskStatus) -> Self {
        Self {
            state: v1::TaskState::from(status.state).into(),
            message: status.message.map(Into::into),
            timestamp: status.timestamp.map(write_time),
        }
    }
}

// === impl TaskStatusUpdateEvent ===

impl From<StatusUpdate> for v1::TaskStatusUpdateEvent {
    fn from(update: StatusUpdate) -> Self {
        let StatusUpdate { task_id, context_id, status, metadata } = update;
        Self { task_id, context_id, status: Some(status.into()), metadata: write_metadata(metadata) }
    }
}
