//! Tasks, messages, artifacts and what streams bring.

use super::super::{
    super::{
        Artifact, ArtifactUpdate, Content, Invalid, Message, Part, Role, SendMessageResponse, StatusUpdate,
        StreamResponse, Task, TaskState, TaskStatus, base64, invalid::Below as _,
    },
    exact::{Carried, Theirs, read_metadata, write_metadata},
    list, optional, read_time, required, some_list, text, truth, v1, write_time,
};

// === impl Part ===

impl TryFrom<v1::Part> for Part {
    type Error = Invalid;

    fn try_from(part: v1::Part) -> Result<Self, Invalid> {
        use v1::part::Content as C;
        let v1::Part { metadata, filename, media_type, content } = part;
        let (content, data) = match content {
            Some(C::Data(data)) => (None, Some(data)),
            Some(C::Text(text)) => (Some(Content::Text(text)), None),
            Some(C::Raw(bytes)) => (Some(Content::Raw(base64::encode(&bytes))), None),
            Some(C::Url(url)) => (Some(Content::Url(url)), None),
            None => (None, None),
        };
        let Theirs { metadata, data } = Carried { metadata, data }.read()?;
        let content = content
            .or(data.map(Content::Data))
            .ok_or_else(|| Invalid::itself("must have one of text, raw, url and data"))?;
        Ok(Self { content, filename: text(filename), media_type: text(media_type), metadata })
    }
}

impl TryFrom<Part> for v1::Part {
    type Error = Invalid;

    fn try_from(part: Part) -> Result<Self, Invalid> {
        use v1::part::Content as C;
        let Part { content, filename, media_type, metadata } = part;
        let (content, data) = match content {
            Content::Data(data) => (None, Some(data)),
            Content::Text(text) => (Some(C::Text(text)), None),
            Content::Raw(text) => {
                let bytes = base64::decode(&text).ok_or_else(|| Invalid::new("raw", "is not base64"))?;
                (Some(C::Raw(bytes)), None)
            }
            Content::Url(url) => (Some(C::Url(url)), None),
        };
        let Carried { metadata, data } = Theirs { metadata, data }.write()?;
        Ok(Self {
            metadata,
            filename: filename.unwrap_or_default(),
            media_type: media_type.unwrap_or_default(),
            content: content.or(data.map(C::Data)),
        })
    }
}

// === impl Message ===

impl TryFrom<v1::Message> for Message {
    type Error = Invalid;

    fn try_from(message: v1::Message) -> Result<Self, Invalid> {
        let role = match message.role() {
            v1::Role::User => Role::User,
            v1::Role::Agent => Role::Agent,
            v1::Role::Unspecified => return Err(Invalid::new("role", "must be ROLE_USER or ROLE_AGENT")),
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

impl TryFrom<Message> for v1::Message {
    type Error = Invalid;

    fn try_from(message: Message) -> Result<Self, Invalid> {
        let role = match message.role {
            Role::User => v1::Role::User,
            Role::Agent => v1::Role::Agent,
        };
        Ok(Self {
            message_id: message.message_id,
            context_id: message.context_id.unwrap_or_default(),
            task_id: message.task_id.unwrap_or_default(),
            role: role.into(),
            parts: list("parts", message.parts)?,
            metadata: write_metadata(message.metadata)?,
            extensions: message.extensions,
            reference_task_ids: message.reference_task_ids,
        })
    }
}

// === impl Artifact ===

impl TryFrom<v1::Artifact> for Artifact {
    type Error = Invalid;

    fn try_from(artifact: v1::Artifact) -> Result<Self, Invalid> {
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

impl TryFrom<Artifact> for v1::Artifact {
    type Error = Invalid;

    fn try_from(artifact: Artifact) -> Result<Self, Invalid> {
        Ok(Self {
            artifact_id: artifact.artifact_id,
            name: artifact.name.unwrap_or_default(),
            description: artifact.description.unwrap_or_default(),
            parts: list("parts", artifact.parts)?,
            metadata: write_metadata(artifact.metadata)?,
            extensions: artifact.extensions,
        })
    }
}

// === impl TaskState ===

/// Nothing for the state that nobody specified.
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
    type Error = Invalid;

    fn try_from(status: v1::TaskStatus) -> Result<Self, Invalid> {
        let state = read_state(status.state()).ok_or_else(|| Invalid::new("state", "must be one of TASK_STATE_…"))?;
        let timestamp = status.timestamp.map(|time| read_time("timestamp", time)).transpose()?;
        Ok(Self { state, message: optional("message", status.message)?, timestamp })
    }
}

impl TryFrom<TaskStatus> for v1::TaskStatus {
    type Error = Invalid;

    fn try_from(status: TaskStatus) -> Result<Self, Invalid> {
        Ok(Self {
            state: v1::TaskState::from(status.state).into(),
            message: optional("message", status.message)?,
            timestamp: status.timestamp.map(write_time),
        })
    }
}

// === impl Task ===

impl TryFrom<v1::Task> for Task {
    type Error = Invalid;

    fn try_from(task: v1::Task) -> Result<Self, Invalid> {
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

impl TryFrom<Task> for v1::Task {
    type Error = Invalid;

    fn try_from(task: Task) -> Result<Self, Invalid> {
        Ok(Self {
            id: task.id,
            context_id: task.context_id,
            status: Some(task.status.try_into().below("status")?),
            artifacts: list("artifacts", task.artifacts.unwrap_or_default())?,
            history: list("history", task.history.unwrap_or_default())?,
            metadata: write_metadata(task.metadata)?,
        })
    }
}

// === impl StatusUpdate ===

impl TryFrom<v1::TaskStatusUpdateEvent> for StatusUpdate {
    type Error = Invalid;

    fn try_from(update: v1::TaskStatusUpdateEvent) -> Result<Self, Invalid> {
        let v1::TaskStatusUpdateEvent { task_id, context_id, status, metadata } = update;
        Ok(Self { task_id, context_id, status: required("status", status)?, metadata: read_metadata(metadata)? })
    }
}

impl TryFrom<StatusUpdate> for v1::TaskStatusUpdateEvent {
    type Error = Invalid;

    fn try_from(update: StatusUpdate) -> Result<Self, Invalid> {
        let StatusUpdate { task_id, context_id, status, metadata } = update;
        let status = Some(status.try_into().below("status")?);
        Ok(Self { task_id, context_id, status, metadata: write_metadata(metadata)? })
    }
}

// === impl ArtifactUpdate ===

impl TryFrom<v1::TaskArtifactUpdateEvent> for ArtifactUpdate {
    type Error = Invalid;

    fn try_from(update: v1::TaskArtifactUpdateEvent) -> Result<Self, Invalid> {
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

impl TryFrom<ArtifactUpdate> for v1::TaskArtifactUpdateEvent {
    type Error = Invalid;

    fn try_from(update: ArtifactUpdate) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: update.task_id,
            context_id: update.context_id,
            artifact: Some(update.artifact.try_into().below("artifact")?),
            append: update.append.unwrap_or_default(),
            last_chunk: update.last_chunk.unwrap_or_default(),
            metadata: write_metadata(update.metadata)?,
        })
    }
}

// === impl StreamResponse ===

impl TryFrom<v1::StreamResponse> for StreamResponse {
    type Error = Invalid;

    fn try_from(response: v1::StreamResponse) -> Result<Self, Invalid> {
        use v1::stream_response::Payload as P;
        match response.payload {
            Some(P::Task(task)) => task.try_into().below("task").map(Self::Task),
            Some(P::Message(message)) => message.try_into().below("message").map(Self::Message),
            Some(P::StatusUpdate(update)) => update.try_into().below("status_update").map(Self::StatusUpdate),
            Some(P::ArtifactUpdate(update)) => update.try_into().below("artifact_update").map(Self::ArtifactUpdate),
            None => Err(Invalid::new("payload", "is missing")),
        }
    }
}

impl TryFrom<StreamResponse> for v1::StreamResponse {
    type Error = Invalid;

    fn try_from(response: StreamResponse) -> Result<Self, Invalid> {
        use v1::stream_response::Payload as P;
        let payload = match response {
            StreamResponse::Task(task) => P::Task(task.try_into().below("task")?),
            StreamResponse::Message(message) => P::Message(message.try_into().below("message")?),
            StreamResponse::StatusUpdate(update) => P::StatusUpdate(update.try_into().below("status_update")?),
            StreamResponse::ArtifactUpdate(update) => P::ArtifactUpdate(update.try_into().below("artifact_update")?),
        };
        Ok(Self { payload: Some(payload) })
    }
}

// === impl SendMessageResponse ===

impl TryFrom<v1::SendMessageResponse> for SendMessageResponse {
    type Error = Invalid;

    fn try_from(response: v1::SendMessageResponse) -> Result<Self, Invalid> {
        use v1::send_message_response::Payload as P;
        match response.payload {
            Some(P::Task(task)) => task.try_into().below("task").map(Self::Task),
            Some(P::Message(message)) => message.try_into().below("message").map(Self::Message),
            None => Err(Invalid::new("payload", "is missing")),
        }
    }
}

impl TryFrom<SendMessageResponse> for v1::SendMessageResponse {
    type Error = Invalid;

    fn try_from(response: SendMessageResponse) -> Result<Self, Invalid> {
        use v1::send_message_response::Payload as P;
        let payload = match response {
            SendMessageResponse::Task(task) => P::Task(task.try_into().below("task")?),
            SendMessageResponse::Message(message) => P::Message(message.try_into().below("message")?),
        };
        Ok(Self { payload: Some(payload) })
    }
}
