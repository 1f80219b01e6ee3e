//! The body of `message:send` and `message:stream`. The other requests have their parameters in the path.

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

use super::{super::PushConfigV03, RestMessageV03, is_false};
use crate::{self as new, or_default};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestSendMessageV03 {
    #[serde(alias = "request")]
    pub message: RestMessageV03,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<RestSendConfigurationV03>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestSendConfigurationV03 {
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    #[serde(default, alias = "push_notification", skip_serializing_if = "Option::is_none")]
    pub push_notification: Option<PushConfigV03>,
    #[serde(default, alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// Omitted by callers that don't wait, since false is not written.
    #[serde(default, skip_serializing_if = "is_false")]
    pub blocking: Option<bool>,
}

// === impl RestSendMessageV03 ===

impl From<RestSendMessageV03> for new::SendMessage {
    fn from(old: RestSendMessageV03) -> Self {
        let configuration = old.configuration.map(Into::into);
        Self { tenant: None, message: old.message.into(), configuration, metadata: old.metadata }
    }
}

impl From<new::SendMessage> for RestSendMessageV03 {
    fn from(new: new::SendMessage) -> Self {
        // Always set: without it, old servers don't wait.
        let configuration = Some(new.configuration.unwrap_or_default().into());
        Self { message: new.message.into(), configuration, metadata: new.metadata }
    }
}

// === impl RestSendConfigurationV03 ===

impl From<RestSendConfigurationV03> for new::SendConfiguration {
    fn from(old: RestSendConfigurationV03) -> Self {
        Self {
            accepted_output_modes: old.accepted_output_modes,
            task_push_notification_config: old.push_notification.map(Into::into),
            history_length: old.history_length.filter(|length| *length != 0),
            return_immediately: Some(!old.blocking.unwrap_or_default()),
        }
    }
}

impl From<new::SendConfiguration> for RestSendConfigurationV03 {
    fn from(new: new::SendConfiguration) -> Self {
        Self {
            accepted_output_modes: new.accepted_output_modes,
            push_notification: new.task_push_notification_config.map(Into::into),
            history_length: new.history_length,
            blocking: Some(!new.return_immediately.unwrap_or_default()),
        }
    }
}
