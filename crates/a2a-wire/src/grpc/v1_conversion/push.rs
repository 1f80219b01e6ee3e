//! Push configs and their requests.

use super::super::{count, list, text, v1};
use crate::{GetPushConfig, InvalidField, ListPushConfigs, PushAuthenticationInfo, PushConfig, PushConfigList};

// === impl PushConfig ===

impl TryFrom<v1::TaskPushNotificationConfig> for PushConfig {
    type Error = InvalidField;

    fn try_from(config: v1::TaskPushNotificationConfig) -> Result<Self, InvalidField> {
        let authentication = config
            .authentication
            .map(|given| PushAuthenticationInfo { scheme: given.scheme, credentials: text(given.credentials) });
        Ok(Self {
            tenant: text(config.tenant),
            id: text(config.id),
            task_id: text(config.task_id),
            url: text(config.url).ok_or_else(|| InvalidField::new("url", "is missing"))?,
            token: text(config.token),
            authentication,
        })
    }
}

impl From<PushConfig> for v1::TaskPushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        let authentication = config.authentication.map(|given| v1::AuthenticationInfo {
            scheme: given.scheme,
            credentials: given.credentials.unwrap_or_default(),
        });
        Self {
            tenant: config.tenant.unwrap_or_default(),
            id: config.id.unwrap_or_default(),
            task_id: config.task_id.unwrap_or_default(),
            url: config.url,
            token: config.token.unwrap_or_default(),
            authentication,
        }
    }
}

// === impl GetPushConfig ===

impl From<v1::GetTaskPushNotificationConfigRequest> for GetPushConfig {
    fn from(request: v1::GetTaskPushNotificationConfigRequest) -> Self {
        Self { tenant: text(request.tenant), task_id: request.task_id, id: request.id }
    }
}

impl From<GetPushConfig> for v1::GetTaskPushNotificationConfigRequest {
    fn from(request: GetPushConfig) -> Self {
        Self { tenant: request.tenant.unwrap_or_default(), task_id: request.task_id, id: request.id }
    }
}

impl From<v1::DeleteTaskPushNotificationConfigRequest> for GetPushConfig {
    fn from(request: v1::DeleteTaskPushNotificationConfigRequest) -> Self {
        Self { tenant: text(request.tenant), task_id: request.task_id, id: request.id }
    }
}

impl From<GetPushConfig> for v1::DeleteTaskPushNotificationConfigRequest {
    fn from(request: GetPushConfig) -> Self {
        Self { tenant: request.tenant.unwrap_or_default(), task_id: request.task_id, id: request.id }
    }
}

// === impl ListPushConfigs ===

impl From<v1::ListTaskPushNotificationConfigsRequest> for ListPushConfigs {
    fn from(request: v1::ListTaskPushNotificationConfigsRequest) -> Self {
        Self {
            tenant: text(request.tenant),
            task_id: request.task_id,
            page_size: count(request.page_size),
            page_token: text(request.page_token),
        }
    }
}

impl From<ListPushConfigs> for v1::ListTaskPushNotificationConfigsRequest {
    fn from(request: ListPushConfigs) -> Self {
        Self {
            tenant: request.tenant.unwrap_or_default(),
            task_id: request.task_id,
            page_size: request.page_size.unwrap_or_default(),
            page_token: request.page_token.unwrap_or_default(),
        }
    }
}

// === impl PushConfigList ===

impl TryFrom<v1::ListTaskPushNotificationConfigsResponse> for PushConfigList {
    type Error = InvalidField;

    fn try_from(response: v1::ListTaskPushNotificationConfigsResponse) -> Result<Self, InvalidField> {
        Ok(Self { configs: list("configs", response.configs)?, next_page_token: response.next_page_token })
    }
}

impl From<PushConfigList> for v1::ListTaskPushNotificationConfigsResponse {
    fn from(response: PushConfigList) -> Self {
        let configs = response.configs.into_iter().map(Into::into).collect();
        Self { configs, next_page_token: response.next_page_token }
    }
}
