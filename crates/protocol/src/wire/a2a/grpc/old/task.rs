//! Tasks, messages, artifacts and what streams bring.

use prost_types::{Struct, Value, value::Kind};

use super::super::{
    super::{
        Artifact, ArtifactUpdate, Content, Invalid, Message, Part, Role, SendMessageResponse, StatusUpdate,
        StreamResponse, Task, TaskState, TaskStatus, base64,
        invalid::Below as _,
        v03::{unwrapped, wrapped},
    },
    exact::{Carried, Theirs, read_metadata, write_metadata},
    list, optional, read_time, required, some_list, text, truth, v03, write_time,
};

// === impl Part ===

impl TryFrom<v03::Part> for Part {
    type Error = Invalid;

    fn try_from(part: v03::Part) -> Result<Self, Invalid> {
        use v03::{file_part::File, part::Part as P};
        let v03::Part { metadata, part } = part;
        let (mut filename, mut media_type) = (None, None);
        let (content, data) = match part {
            Some(P::Text(text)) => (Some(Content::Text(text)), None),
            Some(P::File(v03::FilePart { mime_type, name, file })) => {
                (filename, media_type) = (text(name), text(mime_type));
                let content = match file {
                    Some(File::FileWithUri(uri)) => Content::Url(uri),
                    Some(File::FileWithBytes(bytes)) => Content::Raw(base64::from_old_file(bytes)),
                    None => return Err(Invalid::new("file", "must have one of file_with_uri and file_with_bytes")),
                };
                (Some(content), None)
            }
            Some(P::Data(v03::DataPart { data })) => {
                (None, Some(Value { kind: Some(Kind::StructValue(data.unwrap_or_default())) }))
            }
            None => (None, None),
        };
        let Theirs { metadata, data } = Carried { metadata, data }.read()?;
        let content = content
            .or(data.map(|data| Content::Data(unwrapped(data))))
            .ok_or_else(|| Invalid::itself("must have one of text, file and data"))?;
        Ok(Self { content, filename, media_type, metadata })
    }
}

impl TryFrom<Part> for v03::Part {
    type Error = Invalid;

    fn try_from(part: Part) -> Result<Self, Invalid> {
        use v03::{file_part::File, part::Part as P};
        let Part { content, filename, media_type, metadata } = part;
        let file = |file| {
            let (mime_type, name) = (media_type.unwrap_or_default(), filename.unwrap_or_default());
            Some(P::File(v03::FilePart { mime_type, name, file: Some(file) }))
        };
        let (part, data) = match content {
            Content::Text(text) => (Some(P::Text(text)), None),
            Content::Raw(text) => {
                let text = base64::to_old_file(&text).ok_or_else(|| Invalid::new("raw", "is not base64"))?;
                (file(File::FileWithBytes(text.into_bytes())), None)
            }
            Content::Url(uri) => (file(File::FileWithUri(uri)), None),
            Content::Data(data) => (None, Some(wrapped(&data))),
        };
        let Carried { metadata, data } = Theirs { metadata, data }.write()?;
        let data = data.map(|data| P::Data(v03::DataPart { data: Some(object(data)) }));
        Ok(Self { metadata, part: part.or(data) })
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
    type Error = Invalid;

    fn try_from(message: v03::Message) -> Result<Self, Invalid> {
        let role = match message.role() {
            v03::Role::User => Role::User,
            v03::Role::Agent => Role::Agent,
            v03::Role::Unspecified => return Err(Invalid::new("role", "must be ROLE_USER or ROLE_AGENT")),
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

impl TryFrom<Message> for v03::Message {
    type Error = Invalid;

    fn try_from(message: Message) -> Result<Self, Invalid> {
        let role = match message.role {
            Role::User => v03::Role::User,
            Role::Agent => v03::Role::Agent,
        };
        Ok(Self {
            message_id: message.message_id,
            context_id: message.context_id.unwrap_or_default(),
            task_id: message.task_id.unwrap_or_default(),
            role: role.into(),
            content: list("content", message.parts)?,
            metadata: write_metadata(message.metadata)?,
            extensions: message.extensions,
        })
    }
}

// === impl Artifact ===

impl TryFrom<v03::Artifact> for Artifact {
    type Error = Invalid;

    fn try_from(artifact: v03::Artifact) -> Result<Self, Invalid> {
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

impl TryFrom<Artifact> for v03::Artifact {
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

// === impl TaskStatus ===

impl TryFrom<v03::TaskStatus> for TaskStatus {
    type Error = Invalid;

    fn try_from(status: v03::TaskStatus) -> Result<Self, Invalid> {
        use v03::TaskState as S;
        let state = match status.state() {
            S::Submitted => TaskState::TaskStateSubmitted,
            // Of a peer that cannot say: a task whose state is unknown is still at work.
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

impl TryFrom<TaskStatus> for v03::TaskStatus {
    type Error = Invalid;

    fn try_from(status: TaskStatus) -> Result<Self, Invalid> {
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
        let update = optional("message", status.message)?;
        Ok(Self { state: state.into(), update, timestamp: status.timestamp.map(write_time) })
    }
}

// === impl Task ===

impl TryFrom<v03::Task> for Task {
    type Error = Invalid;

    fn try_from(task: v03::Task) -> Result<Self, Invalid> {
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

impl TryFrom<Task> for v03::Task {
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

impl TryFrom<v03::TaskStatusUpdateEvent> for StatusUpdate {
    type Error = Invalid;

    fn try_from(update: v03::TaskStatusUpdateEvent) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: update.task_id,
            context_id: update.context_id,
            status: required("status", update.status)?,
            metadata: read_metadata(update.metadata)?,
        })
    }
}

impl TryFrom<StatusUpdate> for v03::TaskStatusUpdateEvent {
    type Error = Invalid;

    fn try_from(update: StatusUpdate) -> Result<Self, Invalid> {
        let state = update.status.state;
        Ok(Self {
            task_id: update.task_id,
            context_id: update.context_id,
            status: Some(update.status.try_into().below("status")?),
            r#final: state.is_terminal() || state.is_interrupted(),
            metadata: write_metadata(update.metadata)?,
        })
    }
}

// === impl ArtifactUpdate ===

impl TryFrom<v03::TaskArtifactUpdateEvent> for ArtifactUpdate {
    type Error = Invalid;

    fn try_from(update: v03::TaskArtifactUpdateEvent) -> Result<Self, Invalid> {
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

impl TryFrom<ArtifactUpdate> for v03::TaskArtifactUpdateEvent {
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

impl TryFrom<v03::StreamResponse> for StreamResponse {
    type Error = Invalid;

    fn try_from(response: v03::StreamResponse) -> Result<Self, Invalid> {
        use v03::stream_response::Payload as P;
        match response.payload {
            Some(P::Task(task)) => task.try_into().below("task").map(Self::Task),
            Some(P::Msg(message)) => message.try_into().below("message").map(Self::Message),
            Some(P::StatusUpdate(update)) => update.try_into().below("status_update").map(Self::StatusUpdate),
            Some(P::ArtifactUpdate(update)) => update.try_into().below("artifact_update").map(Self::ArtifactUpdate),
            None => Err(Invalid::new("payload", "is missing")),
        }
    }
}

impl TryFrom<StreamResponse> for v03::StreamResponse {
    type Error = Invalid;

    fn try_from(response: StreamResponse) -> Result<Self, Invalid> {
        use v03::stream_response::Payload as P;
        let payload = match response {
            StreamResponse::Task(task) => P::Task(task.try_into().below("task")?),
            StreamResponse::Message(message) => P::Msg(message.try_into().below("message")?),
            StreamResponse::StatusUpdate(update) => P::StatusUpdate(update.try_into().below("status_update")?),
            StreamResponse::ArtifactUpdate(update) => P::ArtifactUpdate(update.try_into().below("artifact_update")?),
        };
        Ok(Self { payload: Some(payload) })
    }
}

// === impl SendMessageResponse ===

impl TryFrom<v03::SendMessageResponse> for SendMessageResponse {
    type Error = Invalid;

    fn try_from(response: v03::SendMessageResponse) -> Result<Self, Invalid> {
        use v03::send_message_response::Payload as P;
        match response.payload {
            Some(P::Task(task)) => task.try_into().below("task").map(Self::Task),
            Some(P::Msg(message)) => message.try_into().below("message").map(Self::Message),
            None => Err(Invalid::new("payload", "is missing")),
        }
    }
}

impl TryFrom<SendMessageResponse> for v03::SendMessageResponse {
    type Error = Invalid;

    fn try_from(response: SendMessageResponse) -> Result<Self, Invalid> {
        use v03::send_message_response::Payload as P;
        let payload = match response {
            SendMessageResponse::Task(task) => P::Task(task.try_into().below("task")?),
            SendMessageResponse::Message(message) => P::Msg(message.try_into().below("message")?),
        };
        Ok(Self { payload: Some(payload) })
    }
}
