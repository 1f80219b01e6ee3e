//! Where people get notifications: their browsers, and chats.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, KeyId, NotificationTargetId, Secret, Timestamp, UserId};

text_enum! {
    /// What carries a notification.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum NotificationService {
        /// A browser, through the push service of its maker.
        WebPush = "web_push",
        Slack = "slack",
        Telegram = "telegram",
        Feishu = "feishu",
    }
}

text_enum! {
    /// How much a notification shows to whoever looks at a locked screen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
    pub enum NotificationDetail {
        /// Which agent wants what kind of thing.
        #[default]
        Title = "title",
        /// Also the command or the question.
        Full = "full",
    }
}

text_enum! {
    /// The language of notifications.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
    pub enum NotificationLanguage {
        #[default]
        English = "en",
        Chinese = "zh",
    }
}

/// What a target is notified of, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NotificationChoices {
    /// Requests and questions that its person may decide or answer. Default: yes.
    #[serde(default = "yes")]
    pub approvals: bool,
    /// The end of runs that its person started.
    #[serde(default)]
    pub runs: bool,
    #[serde(default)]
    pub detail: NotificationDetail,
    #[serde(default)]
    pub language: NotificationLanguage,
}

const fn yes() -> bool {
    true
}

/// How to reach a target.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(tag = "service", rename_all = "snake_case", deny_unknown_fields)]
pub enum NotificationAddress {
    WebPush {
        /// The `PushSubscription` of the browser.
        #[schema(value_type = String)]
        endpoint: Secret<String>,
        keys: WebPushKeys,
    },
    /// An incoming webhook.
    Slack {
        #[schema(value_type = String)]
        webhook_url: Secret<String>,
    },
    /// A bot, and the chat that it writes to.
    Telegram {
        #[schema(value_type = String)]
        bot_token: Secret<String>,
        chat_id: i64,
        /// The Bot API server. Default: Telegram's own.
        #[serde(default)]
        api_url: Option<String>,
    },
    /// A custom bot, with its signing secret if it has one.
    Feishu {
        #[schema(value_type = String)]
        webhook_url: Secret<String>,
        #[serde(default)]
        #[schema(value_type = Option<String>)]
        secret: Option<Secret<String>>,
    },
}

/// The browser's half of the encryption, base64url without padding.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebPushKeys {
    pub p256dh: String,
    #[schema(value_type = String)]
    pub auth: Secret<String>,
}

/// `POST /api/v1/notification-targets`. Everything it is notified of follows the rights of the key or session that creates
/// it, and it ends with that.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateNotificationTarget {
    /// Its display name, for example the device's name.
    pub name: String,
    pub address: NotificationAddress,
    #[serde(default)]
    pub choices: NotificationChoices,
}

/// `PATCH /api/v1/notification-targets/{target}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateNotificationTarget {
    pub choices: NotificationChoices,
}

/// Its secrets are never shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotificationTarget {
    pub notification_target_id: NotificationTargetId,
    pub service: NotificationService,
    pub name: String,
    pub user_id: Option<UserId>,
    /// The key or session with whose rights it is notified, and with which it ends.
    pub key_id: KeyId,
    /// Scheme, host and port.
    pub origin: String,
    pub choices: NotificationChoices,
    pub created_at: Timestamp,
    /// Whether the caller's own session created it.
    pub current: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotificationTargetList {
    /// In order of creation.
    pub notification_targets: Vec<NotificationTarget>,
    /// The hub's public key for Web Push, base64url without padding: the `applicationServerKey` of a subscription.
    pub web_push_key: String,
}

/// The result of `POST /api/v1/notification-targets/{target}/test`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotificationTest {
    pub delivered: bool,
    /// The service's HTTP status.
    pub status: Option<u16>,
    pub error: Option<String>,
}

/// What a service worker receives, in clear. Texts from agents are inert there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushPayload {
    pub title: String,
    pub body: String,
    /// A later notification with the same tag replaces this one.
    pub tag: String,
    /// The page to open.
    pub path: String,
    /// What can be decided without opening the page.
    pub actions: Vec<PushAction>,
    /// What to say after a decision, and if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Json>,
}

/// A button of a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushAction {
    /// `approve`, `deny` or `open`.
    pub action: String,
    pub title: String,
    /// Proves that this notification offered the decision. Worthless without the session that it was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<String>,
}

// === impl NotificationChoices ===

impl Default for NotificationChoices {
    fn default() -> Self {
        Self {
            approvals: true,
            runs: false,
            detail: NotificationDetail::default(),
            language: NotificationLanguage::default(),
        }
    }
}

// === impl NotificationAddress ===

impl NotificationAddress {
    pub const fn service(&self) -> NotificationService {
        match self {
            Self::WebPush { .. } => NotificationService::WebPush,
            Self::Slack { .. } => NotificationService::Slack,
            Self::Telegram { .. } => NotificationService::Telegram,
            Self::Feishu { .. } => NotificationService::Feishu,
        }
    }
}
