//! Push configs. The ids of a config and its task are in the config's name.

use serde::{Deserialize, Serialize};

use super::super::{
    super::{self as new, Invalid, invalid::Below as _, or_default},
    PushConfig, name,
};

/// What the requests about configs answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPushConfig {
    /// `tasks/{id}/pushNotificationConfigs/{id}`.
    pub name: String,
    #[serde(alias = "push_notification_config")]
    pub push_notification_config: PushConfig,
}

/// The body that makes a config. Clients send the whole request, or its `config` alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreatePushConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    #[serde(default, alias = "config_id", skip_serializing_if = "Option::is_none")]
    pub config_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<GivenConfig>,
    #[serde(default, alias = "push_notification_config", skip_serializing_if = "Option::is_none")]
    pub push_notification_config: Option<PushConfig>,
}

/// A config whose name is the sender's guess at what it will be called, and not needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(alias = "push_notification_config")]
    pub push_notification_config: PushConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfigList {
    #[serde(default, deserialize_with = "or_default")]
    pub configs: Vec<TaskPushConfig>,
    #[serde(
        default,
        alias = "next_page_token",
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

// === impl TaskPushConfig ===

impl TryFrom<TaskPushConfig> for new::PushConfig {
    type Error = Invalid;

    fn try_from(old: TaskPushConfig) -> Result<Self, Invalid> {
        let name = name::read_push_config("name", &old.name)?;
        let read = Self::from(old.push_notification_config);
        Ok(Self { id: Some(read.id.unwrap_or(name.id)), task_id: Some(name.task_id), ..read })
    }
}

impl From<new::PushConfig> for TaskPushConfig {
    fn from(new: new::PushConfig) -> Self {
        Self { name: name::of_push_config(&new), push_notification_config: new.into() }
    }
}

// === impl CreatePushConfig ===

impl CreatePushConfig {
    /// The config for the task that the path names.
    pub fn of_task(self, task_id: &str) -> Result<new::PushConfig, Invalid> {
        let given = self.config.map(|config| config.push_notification_config).or(self.push_notification_config);
        let given = given.ok_or_else(|| Invalid::new("config.pushNotificationConfig", "is missing"))?;
        let read = new::PushConfig::from(given);
        let id = read.id.or(self.config_id).filter(|id| !id.is_empty());
        Ok(new::PushConfig { id, task_id: Some(task_id.to_owned()), ..read })
    }
}

impl From<new::PushConfig> for CreatePushConfig {
    fn from(new: new::PushConfig) -> Self {
        let TaskPushConfig { name, push_notification_config } = TaskPushConfig::from(new.clone());
        Self {
            parent: Some(name::task(new.task_id.as_deref().unwrap_or_default())),
            config_id: new.id,
            config: Some(GivenConfig { name: Some(name), push_notification_config }),
            push_notification_config: None,
        }
    }
}

// === impl PushConfigList ===

impl TryFrom<PushConfigList> for new::PushConfigList {
    type Error = Invalid;

    fn try_from(old: PushConfigList) -> Result<Self, Invalid> {
        let read = |(index, config)| new::PushConfig::try_from(config).below(format_args!("configs[{index}]"));
        let configs = old.configs.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
        Ok(Self { configs, next_page_token: old.next_page_token })
    }
}

impl From<new::PushConfigList> for PushConfigList {
    fn from(new: new::PushConfigList) -> Self {
        let configs = new.configs.into_iter().map(Into::into).collect();
        Self { configs, next_page_token: new.next_page_token }
    }
}
