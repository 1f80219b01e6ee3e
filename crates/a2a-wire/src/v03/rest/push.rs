//! Push configs. The ids of a config and its task are in the config's name.

use serde::{Deserialize, Serialize};

use super::super::{PushConfigV03, name};
use crate::{self as new, InvalidField, invalid_field::WithinField as _, or_default};

/// The response of the config requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestTaskPushConfigV03 {
    /// `tasks/{id}/pushNotificationConfigs/{id}`.
    pub name: String,
    #[serde(alias = "push_notification_config")]
    pub push_notification_config: PushConfigV03,
}

/// The body that creates a config. Clients send the complete request, or only its `config`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestCreatePushConfigBodyV03 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default, alias = "config_id", skip_serializing_if = "Option::is_none")]
    pub config_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<RestNewPushConfigV03>,
    #[serde(default, alias = "push_notification_config", skip_serializing_if = "Option::is_none")]
    pub push_notification_config: Option<PushConfigV03>,
}

/// A config whose name is only the sender's guess and is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestNewPushConfigV03 {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(alias = "push_notification_config")]
    pub push_notification_config: PushConfigV03,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RestPushConfigListV03 {
    #[serde(default, deserialize_with = "or_default")]
    pub configs: Vec<RestTaskPushConfigV03>,
    #[serde(
        default,
        alias = "next_page_token",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

// === impl RestTaskPushConfigV03 ===

impl TryFrom<RestTaskPushConfigV03> for new::PushConfig {
    type Error = InvalidField;

    fn try_from(old: RestTaskPushConfigV03) -> Result<Self, InvalidField> {
        let name = name::read_push_config("name", &old.name)?;
        let read = Self::from(old.push_notification_config);
        Ok(Self { id: Some(read.id.unwrap_or(name.id)), task_id: Some(name.task_id), ..read })
    }
}

impl From<new::PushConfig> for RestTaskPushConfigV03 {
    fn from(new: new::PushConfig) -> Self {
        Self { name: name::of_push_config(&new), push_notification_config: new.into() }
    }
}

// === impl RestCreatePushConfigBodyV03 ===

impl RestCreatePushConfigBodyV03 {
    /// The config for the task in the path.
    pub fn of_task(self, task_id: &str) -> Result<new::PushConfig, InvalidField> {
        let given = self.config.map(|config| config.push_notification_config).or(self.push_notification_config);
        let given = given.ok_or_else(|| InvalidField::new("config.pushNotificationConfig", "is missing"))?;
        let read = new::PushConfig::from(given);
        let id = read.id.or(self.config_id).filter(|id| !id.is_empty());
        Ok(new::PushConfig { id, task_id: Some(task_id.to_owned()), ..read })
    }
}

impl From<new::PushConfig> for RestCreatePushConfigBodyV03 {
    fn from(new: new::PushConfig) -> Self {
        let RestTaskPushConfigV03 { name, push_notification_config } = RestTaskPushConfigV03::from(new.clone());
        Self {
            parent: Some(name::task(new.task_id.as_deref().unwrap_or_default())),
            config_id: new.id,
            config: Some(RestNewPushConfigV03 { name: Some(name), push_notification_config }),
            push_notification_config: None,
        }
    }
}

// === impl RestPushConfigListV03 ===

impl TryFrom<RestPushConfigListV03> for new::PushConfigList {
    type Error = InvalidField;

    fn try_from(old: RestPushConfigListV03) -> Result<Self, InvalidField> {
        let read = |(index, config)| new::PushConfig::try_from(config).within(format_args!("configs[{index}]"));
        let configs = old.configs.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { configs, next_page_token: old.next_page_token })
    }
}

impl From<new::PushConfigList> for RestPushConfigListV03 {
    fn from(new: new::PushConfigList) -> Self {
        let configs = new.configs.into_iter().map(Into::into).collect();
        Self { configs, next_page_token: new.next_page_token }
    }
}
