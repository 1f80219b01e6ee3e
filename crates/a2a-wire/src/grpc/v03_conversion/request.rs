//! The requests of 0.3's service, and push configs. Ids are part of resource names here.

use super::super::{
    count,
    exact_json::{read_metadata, write_metadata},
    list, optional, required, text, v03,
};
use crate::{
    CancelTask, GetExtendedCard, GetPushConfig, GetTask, InvalidField, ListPushConfigs, PushAuthenticationInfo,
    PushConfig, PushConfigList, SendConfiguration, SendMessage, SubscribeToTask, invalid_field::WithinField as _,
    v03::name,
};

// === impl SendMessage ===

impl TryFrom<v03::SendMessageRequest> for SendMessage {
    type Error = InvalidField;

    fn try_from(request: v03::SendMessageRequest) -> Result<Self, InvalidField> {
        Ok(Self {
            tenant: None,
            message: required("message", request.request)?,
            configuration: optional("configuration", request.configuration)?,
            metadata: read_metadata(request.metadata)?,
        })
    }
}

impl From<SendMessage> for v03::SendMessageRequest {
    fn from(request: SendMessage) -> Self {
        Self {
            request: Some(request.message.into()),
            // Always set: without it, old servers don't wait.
            configuration: Some(request.configuration.unwrap_or_default().into()),
            metadata: write_metadata(request.metadata),
        }
    }
}

impl TryFrom<v03::SendMessageConfiguration> for SendConfiguration {
    type Error = InvalidField;

    fn try_from(configuration: v03::SendMessageConfiguration) -> Result<Self, InvalidField> {
        Ok(Self {
            accepted_output_modes: configuration.accepted_output_modes,
            task_push_notification_config: optional("push_notification", configuration.push_notification)?,
            history_length: count(configuration.history_length),
            return_immediately: Some(!configuration.blocking),
        })
    }
}

impl From<SendConfiguration> for v03::SendMessageConfiguration {
    fn from(configuration: SendConfiguration) -> Self {
        Self {
            accepted_output_modes: configuration.accepted_output_modes,
            push_notification: configuration.task_push_notification_config.map(Into::into),
            history_length: configuration.history_length.unwrap_or_default(),
            blocking: !configuration.return_immediately.unwrap_or_default(),
        }
    }
}

// === impl GetTask ===

impl TryFrom<v03::GetTaskRequest> for GetTask {
    type Error = InvalidField;

    fn try_from(request: v03::GetTaskRequest) -> Result<Self, InvalidField> {
        let id = name::read_task("name", &request.name)?;
        Ok(Self { tenant: None, id, history_length: count(request.history_length) })
    }
}

impl From<GetTask> for v03::GetTaskRequest {
    fn from(request: GetTask) -> Self {
        Self { name: name::task(&request.id), history_length: request.history_length.unwrap_or_default() }
    }
}

// === impl CancelTask ===

impl TryFrom<v03::CancelTaskRequest> for CancelTask {
    type Error = InvalidField;

    fn try_from(request: v03::CancelTaskRequest) -> Result<Self, InvalidField> {
        Ok(Self { tenant: None, id: name::read_task("name", &request.name)?, metadata: None })
    }
}

impl From<CancelTask> for v03::CancelTaskRequest {
    fn from(request: CancelTask) -> Self {
        Self { name: name::task(&request.id) }
    }
}

// === impl SubscribeToTask ===

impl TryFrom<v03::TaskSubscriptionRequest> for SubscribeToTask {
    type Error = InvalidField;

    fn try_from(request: v03::TaskSubscriptionRequest) -> Result<Self, InvalidField> {
        Ok(Self { tenant: None, id: name::read_task("name", &request.name)? })
    }
}

impl From<SubscribeToTask> for v03::TaskSubscriptionRequest {
    fn from(request: SubscribeToTask) -> Self {
        Self { name: name::task(&request.id) }
    }
}

// === impl GetExtendedCard ===

impl From<v03::GetAgentCardRequest> for GetExtendedCard {
    fn from(_: v03::GetAgentCardRequest) -> Self {
        Self { tenant: None }
    }
}

impl From<GetExtendedCard> for v03::GetAgentCardRequest {
    fn from(_: GetExtendedCard) -> Self {
        Self {}
    }
}

// === impl PushConfig ===

impl TryFrom<v03::PushNotificationConfig> for PushConfig {
    type Error = InvalidField;

    fn try_from(config: v03::PushNotificationConfig) -> Result<Self, InvalidField> {
        let authentication = config.authentication.and_then(|given| {
            let scheme = given.schemes.into_iter().next()?;
            Some(PushAuthenticationInfo { scheme, credentials: text(given.credentials) })
        });
        Ok(Self {
            tenant: None,
            id: text(config.id),
            task_id: None,
            url: text(config.url).ok_or_else(|| InvalidField::new("url", "is missing"))?,
            token: text(config.token),
            authentication,
        })
    }
}

impl From<PushConfig> for v03::PushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        let authentication = config.authentication.map(|given| v03::AuthenticationInfo {
            schemes: vec![given.scheme],
            credentials: given.credentials.unwrap_or_default(),
        });
        Self {
            id: config.id.unwrap_or_default(),
            url: config.url,
            token: config.token.unwrap_or_default(),
            authentication,
        }
    }
}

/// The ids in the name apply if the config has none.
impl TryFrom<v03::TaskPushNotificationConfig> for PushConfig {
    type Error = InvalidField;

    fn try_from(config: v03::TaskPushNotificationConfig) -> Result<Self, InvalidField> {
        let name = name::read_push_config("name", &config.name)?;
        let read: Self = required("push_notification_config", config.push_notification_config)?;
        Ok(Self { id: Some(read.id.unwrap_or(name.id)), task_id: Some(name.task_id), ..read })
    }
}

impl From<PushConfig> for v03::TaskPushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        let name = name::of_push_config(&config);
        Self { name, push_notification_config: Some(config.into()) }
    }
}

/// The task is the parent. The name inside the config is only the sender's guess.
impl TryFrom<v03::CreateTaskPushNotificationConfigRequest> for PushConfig {
    type Error = InvalidField;

    fn try_from(request: v03::CreateTaskPushNotificationConfigRequest) -> Result<Self, InvalidField> {
        let task_id = name::read_task("parent", &request.parent)?;
        let config = request.config.unwrap_or_default().push_notification_config;
        let read: Self = required("push_notification_config", config).within("config")?;
        Ok(Self { id: read.id.or(text(request.config_id)), task_id: Some(task_id), ..read })
    }
}

impl From<PushConfig> for v03::CreateTaskPushNotificationConfigRequest {
    fn from(config: PushConfig) -> Self {
        Self {
            parent: name::task(config.task_id.as_deref().unwrap_or_default()),
            config_id: config.id.clone().unwrap_or_default(),
            config: Some(config.into()),
        }
    }
}

// === impl GetPushConfig ===

impl TryFrom<v03::GetTaskPushNotificationConfigRequest> for GetPushConfig {
    type Error = InvalidField;

    fn try_from(request: v03::GetTaskPushNotificationConfigRequest) -> Result<Self, InvalidField> {
        name::read_push_config("name", &request.name)
    }
}

impl From<GetPushConfig> for v03::GetTaskPushNotificationConfigRequest {
    fn from(request: GetPushConfig) -> Self {
        Self { name: name::push_config(&request.task_id, &request.id) }
    }
}

impl TryFrom<v03::DeleteTaskPushNotificationConfigRequest> for GetPushConfig {
    type Error = InvalidField;

    fn try_from(request: v03::DeleteTaskPushNotificationConfigRequest) -> Result<Self, InvalidField> {
        name::read_push_config("name", &request.name)
    }
}

impl From<GetPushConfig> for v03::DeleteTaskPushNotificationConfigRequest {
    fn from(request: GetPushConfig) -> Self {
        Self { name: name::push_config(&request.task_id, &request.id) }
    }
}

// === impl ListPushConfigs ===

impl TryFrom<v03::ListTaskPushNotificationConfigRequest> for ListPushConfigs {
    type Error = InvalidField;

    fn try_from(request: v03::ListTaskPushNotificationConfigRequest) -> Result<Self, InvalidField> {
        Ok(Self {
            tenant: None,
            task_id: name::read_task("parent", &request.parent)?,
            page_size: count(request.page_size),
            page_token: text(request.page_token),
        })
    }
}

impl From<ListPushConfigs> for v03::ListTaskPushNotificationConfigRequest {
    fn from(request: ListPushConfigs) -> Self {
        Self {
            parent: name::task(&request.task_id),
            page_size: request.page_size.unwrap_or_default(),
            page_token: request.page_token.unwrap_or_default(),
        }
    }
}

// === impl PushConfigList ===

impl TryFrom<v03::ListTaskPushNotificationConfigResponse> for PushConfigList {
    type Error = InvalidField;

    fn try_from(response: v03::ListTaskPushNotificationConfigResponse) -> Result<Self, InvalidField> {
        Ok(Self { configs: list("configs", response.configs)?, next_page_token: response.next_page_token })
    }
}

impl From<PushConfigList> for v03::ListTaskPushNotificationConfigResponse {
    fn from(response: PushConfigList) -> Self {
        let configs = response.configs.into_iter().map(Into::into).collect();
        Self { configs, next_page_token: response.next_page_token }
    }
}
