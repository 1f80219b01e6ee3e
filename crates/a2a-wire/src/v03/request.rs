//! The parameters of 0.3's methods.

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

use super::MessageV03;
use crate::{self as new, or_default};

/// `message/send` and `message/stream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendParamsV03 {
    pub message: MessageV03,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendConfigurationV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendConfigurationV03 {
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub accepted_output_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_notification_config: Option<PushConfigV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// Absent means the caller waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocking: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushConfigV03 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<PushAuthenticationV03>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAuthenticationV03 {
    #[serde(default, deserialize_with = "or_default")]
    pub schemes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// `tasks/pushNotificationConfig/set`, and the responses of the related methods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPushConfigV03 {
    pub task_id: String,
    pub push_notification_config: PushConfigV03,
}

/// `tasks/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskQueryParamsV03 {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
}

/// `tasks/cancel`, `tasks/resubscribe`, `tasks/pushNotificationConfig/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIdParamsV03 {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// `tasks/pushNotificationConfig/get`. Without a config id, the task's only config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPushConfigV03 {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_notification_config_id: Option<String>,
}

/// `tasks/pushNotificationConfig/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletePushConfigV03 {
    pub id: String,
    pub push_notification_config_id: String,
}

// === impl SendParamsV03 ===

impl From<SendParamsV03> for new::SendMessage {
    fn from(old: SendParamsV03) -> Self {
        let configuration = old.configuration.map(|old| new::SendConfiguration {
            accepted_output_modes: old.accepted_output_modes,
            task_push_notification_config: old.push_notification_config.map(Into::into),
            history_length: old.history_length,
            return_immediately: old.blocking.map(|blocking| !blocking),
        });
        Self { tenant: None, message: old.message.into(), configuration, metadata: old.metadata }
    }
}

impl From<new::SendMessage> for SendParamsV03 {
    fn from(new: new::SendMessage) -> Self {
        let configuration = new.configuration.map(|new| SendConfigurationV03 {
            accepted_output_modes: new.accepted_output_modes,
            push_notification_config: new.task_push_notification_config.map(Into::into),
            history_length: new.history_length,
            // Always set, because old servers have different defaults.
            blocking: Some(!new.return_immediately.unwrap_or(false)),
        });
        Self { message: new.message.into(), configuration, metadata: new.metadata }
    }
}

// === impl PushConfigV03 ===

impl From<PushConfigV03> for new::PushConfig {
    fn from(old: PushConfigV03) -> Self {
        let authentication = old.authentication.and_then(|old| {
            let scheme = old.schemes.into_iter().next()?;
            Some(new::PushAuthenticationInfo { scheme, credentials: old.credentials })
        });
        Self { tenant: None, id: old.id, task_id: None, url: old.url, token: old.token, authentication }
    }
}

impl From<new::PushConfig> for PushConfigV03 {
    fn from(new: new::PushConfig) -> Self {
        let authentication = new
            .authentication
            .map(|new| PushAuthenticationV03 { schemes: vec![new.scheme], credentials: new.credentials });
        Self { id: new.id, url: new.url, token: new.token, authentication }
    }
}

// === impl TaskPushConfigV03 ===

impl From<TaskPushConfigV03> for new::PushConfig {
    fn from(old: TaskPushConfigV03) -> Self {
        Self { task_id: Some(old.task_id), ..Self::from(old.push_notification_config) }
    }
}
