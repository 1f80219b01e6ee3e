//! The parameters of 0.3's methods.

use serde::{Deserialize, Serialize};

use super::{
    super::{self as new, or_default},
    Message,
};
use crate::Json;

/// `message/send` and `message/stream`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendParams {
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Configuration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub accepted_output_modes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_notification_config: Option<PushConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// Absent means that the caller waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocking: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<PushAuthentication>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAuthentication {
    #[serde(default, deserialize_with = "or_default")]
    pub schemes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// `tasks/pushNotificationConfig/set`, and what it and its relatives answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPushConfig {
    pub task_id: String,
    pub push_notification_config: PushConfig,
}

/// `tasks/get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskQueryParams {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
}

/// `tasks/cancel`, `tasks/resubscribe`, `tasks/pushNotificationConfig/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskIdParams {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

/// `tasks/pushNotificationConfig/get`: without a config's id the task's only one is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetPushConfig {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_notification_config_id: Option<String>,
}

/// `tasks/pushNotificationConfig/delete`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletePushConfig {
    pub id: String,
    pub push_notification_config_id: String,
}

// === impl SendParams ===

impl From<SendParams> for new::SendMessage {
    fn from(old: SendParams) -> Self {
        let configuration = old.configuration.map(|old| new::SendConfiguration {
            accepted_output_modes: old.accepted_output_modes,
            task_push_notification_config: old.push_notification_config.map(Into::into),
            history_length: old.history_length,
            return_immediately: old.blocking.map(|blocking| !blocking),
        });
        Self { tenant: None, message: old.message.into(), configuration, metadata: old.metadata }
    }
}

impl From<new::SendMessage> for SendParams {
    fn from(new: new::SendMessage) -> Self {
        let configuration = new.configuration.map(|new| Configuration {
            accepted_output_modes: new.accepted_output_modes,
            push_notification_config: new.task_push_notification_config.map(Into::into),
            history_length: new.history_length,
            // Said also when it is the default of 1.0: old servers disagree about theirs.
            blocking: Some(!new.return_immediately.unwrap_or(false)),
        });
        Self { message: new.message.into(), configuration, metadata: new.metadata }
    }
}

// === impl PushConfig ===

impl From<PushConfig> for new::PushConfig {
    fn from(old: PushConfig) -> Self {
        let authentication = old.authentication.and_then(|old| {
            let scheme = old.schemes.into_iter().next()?;
            Some(new::Authentication { scheme, credentials: old.credentials })
        });
        Self { tenant: None, id: old.id, task_id: None, url: old.url, token: old.token, authentication }
    }
}

impl From<new::PushConfig> for PushConfig {
    fn from(new: new::PushConfig) -> Self {
        let authentication = new
            .authentication
            .map(|new| PushAuthentication { schemes: vec![new.scheme], credentials: new.credentials });
        Self { id: new.id, url: new.url, token: new.token, authentication }
    }
}

// === impl TaskPushConfig ===

impl From<TaskPushConfig> for new::PushConfig {
    fn from(old: TaskPushConfig) -> Self {
        Self { task_id: Some(old.task_id), ..Self::from(old.push_notification_config) }
    }
}
