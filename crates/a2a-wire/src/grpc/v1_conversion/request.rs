//! Requests about tasks and cards, and the task list.

use super::{
    super::{
        exact_json::{read_metadata, write_metadata},
        list, optional, read_time, required, text, truth, v1, write_time, written,
    },
    task::read_state,
};
use crate::{
    CancelTask, GetExtendedCard, GetTask, InvalidField, ListTasks, SendConfiguration, SendMessage, SubscribeToTask,
    TaskList, TaskState,
};

// === impl SendMessage ===

impl TryFrom<v1::SendMessageRequest> for SendMessage {
    type Error = InvalidField;

    fn try_from(request: v1::SendMessageRequest) -> Result<Self, InvalidField> {
        Ok(Self {
            tenant: text(request.tenant),
            message: required("message", request.message)?,
            configuration: optional("configuration", request.configuration)?,
            metadata: read_metadata(request.metadata)?,
        })
    }
}

impl From<SendMessage> for v1::SendMessageRequest {
    fn from(request: SendMessage) -> Self {
        Self {
            tenant: request.tenant.unwrap_or_default(),
            message: Some(request.message.into()),
            configuration: request.configuration.map(Into::into),
            metadata: write_metadata(request.metadata),
        }
    }
}

impl TryFrom<v1::SendMessageConfiguration> for SendConfiguration {
    type Error = InvalidField;

    fn try_from(configuration: v1::SendMessageConfiguration) -> Result<Self, InvalidField> {
        const PUSH: &str = "task_push_notification_config";
        Ok(Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: optional(PUSH, configuration.task_push_notification_config)?,
            history_length: configuration.history_length,
            return_immediately: truth(configuration.return_immediately),
        })
    }
}

impl From<SendConfiguration> for v1::SendMessageConfiguration {
    fn from(configuration: SendConfiguration) -> Self {
        Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: configuration.task_push_notification_config.map(Into::into),
            history_length: configuration.history_length,
            return_immediately: configuration.return_immediately.unwrap_or_default(),
        }
    }
}

// === impl GetTask ===

impl From<v1::GetTaskRequest> for GetTask {
    fn from(request: v1::GetTaskRequest) -> Self {
        Self { tenant: text(request.tenant), id: request.id, history_length: request.history_length }
    }
}

impl From<GetTask> for v1::GetTaskRequest {
    fn from(request: GetTask) -> Self {
        let GetTask { tenant, id, history_length } = request;
        Self { tenant: tenant.unwrap_or_default(), id, history_length }
    }
}

// === impl ListTasks ===

impl TryFrom<v1::ListTasksRequest> for ListTasks {
    type Error = InvalidField;

    fn try_from(request: v1::ListTasksRequest) -> Result<Self, InvalidField> {
        let status = v1::TaskState::try_from(request.status)
            .map_err(|_| InvalidField::new("status", "must be one of TASK_STATE_…"))?;
        let after = request.status_timestamp_after;
        Ok(Self {
            tenant: text(request.tenant),
            context_id: text(request.context_id),
            status: read_state(status),
            page_size: request.page_size,
            page_token: text(request.page_token),
            history_length: request.history_length,
            status_timestamp_after: after.map(|time| read_time("status_timestamp_after", time)).transpose()?,
            include_artifacts: request.include_artifacts,
        })
    }
}

impl From<ListTasks> for v1::ListTasksRequest {
    fn from(request: ListTasks) -> Self {
        let state = |status: TaskState| i32::from(v1::TaskState::from(status));
        Self {
            tenant: request.tenant.unwrap_or_default(),
            context_id: request.context_id.unwrap_or_default(),
            status: request.status.map(state).unwrap_or_default(),
            page_size: request.page_size,
            page_token: request.page_token.unwrap_or_default(),
            history_length: request.history_length,
            status_timestamp_after: request.status_timestamp_after.map(write_time),
            include_artifacts: request.include_artifacts,
        }
    }
}

// === impl TaskList ===

impl TryFrom<v1::ListTasksResponse> for TaskList {
    type Error = InvalidField;

    fn try_from(response: v1::ListTasksResponse) -> Result<Self, InvalidField> {
        let v1::ListTasksResponse { tasks, next_page_token, page_size, total_size } = response;
        Ok(Self { tasks: list("tasks", tasks)?, next_page_token, page_size, total_size })
    }
}

impl From<TaskList> for v1::ListTasksResponse {
    fn from(response: TaskList) -> Self {
        let TaskList { tasks, next_page_token, page_size, total_size } = response;
        Self { tasks: written(tasks), next_page_token, page_size, total_size }
    }
}

// === impl CancelTask ===

impl TryFrom<v1::CancelTaskRequest> for CancelTask {
    type Error = InvalidField;

    fn try_from(request: v1::CancelTaskRequest) -> Result<Self, InvalidField> {
        Ok(Self { tenant: text(request.tenant), id: request.id, metadata: read_metadata(request.metadata)? })
    }
}

impl From<CancelTask> for v1::CancelTaskRequest {
    fn from(request: CancelTask) -> Self {
        let CancelTask { tenant, id, metadata } = request;
        Self { tenant: tenant.unwrap_or_default(), id, metadata: write_metadata(metadata) }
    }
}

// === impl SubscribeToTask ===

impl From<v1::SubscribeToTaskRequest> for SubscribeToTask {
    fn from(request: v1::SubscribeToTaskRequest) -> Self {
        Self { tenant: text(request.tenant), id: request.id }
    }
}

impl From<SubscribeToTask> for v1::SubscribeToTaskRequest {
    fn from(request: SubscribeToTask) -> Self {
        Self { tenant: request.tenant.unwrap_or_default(), id: request.id }
    }
}

// === impl GetExtendedCard ===

impl From<v1::GetExtendedAgentCardRequest> for GetExtendedCard {
    fn from(request: v1::GetExtendedAgentCardRequest) -> Self {
        Self { tenant: text(request.tenant) }
    }
}

impl From<GetExtendedCard> for v1::GetExtendedAgentCardRequest {
    fn from(request: GetExtendedCard) -> Self {
        Self { tenant: request.tenant.unwrap_or_default() }
    }
}
