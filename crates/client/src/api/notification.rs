//! Notification targets: the devices and chats that are notified.

use attache_protocol::{
    NotificationTargetId,
    wire::notification::{
        CreateNotificationTarget, NotificationAddress, NotificationChoices, NotificationTarget, NotificationTargetList,
        NotificationTest, UpdateNotificationTarget,
    },
};
use reqwest::Method;
use serde::Serialize;

use crate::{
    HubClient, Result,
    hub::{HubRequest, RetrySafety},
};

/// A new target with its secrets, as it is sent.
#[derive(Serialize)]
struct TargetBody<'a> {
    name: &'a str,
    address: AddressBody<'a>,
    choices: NotificationChoices,
}

#[derive(Serialize)]
#[serde(tag = "service", rename_all = "snake_case")]
enum AddressBody<'a> {
    WebPush {
        endpoint: &'a str,
        keys: WebPushKeysBody<'a>,
    },
    Slack {
        webhook_url: &'a str,
    },
    Telegram {
        bot_token: &'a str,
        chat_id: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        api_url: Option<&'a str>,
    },
    Feishu {
        webhook_url: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        secret: Option<&'a str>,
    },
}

#[derive(Serialize)]
struct WebPushKeysBody<'a> {
    p256dh: &'a str,
    auth: &'a str,
}

// === impl HubClient ===

impl HubClient {
    /// The caller's own, in order of creation.
    pub async fn notification_targets(&self) -> Result<NotificationTargetList> {
        self.get(self.api(&["notification-targets"])).await
    }

    pub async fn create_notification_target(&self, target: &CreateNotificationTarget) -> Result<NotificationTarget> {
        self.post(self.api(&["notification-targets"]), &TargetBody::of(target)).await
    }

    pub async fn update_notification_target(
        &self,
        target: NotificationTargetId,
        choices: NotificationChoices,
    ) -> Result<NotificationTarget> {
        let url = self.api(&["notification-targets", &target.to_string()]);
        self.ask(&HubRequest::new(Method::PATCH, url).json(&UpdateNotificationTarget { choices })).await
    }

    pub async fn remove_notification_target(&self, target: NotificationTargetId) -> Result<()> {
        self.delete(self.api(&["notification-targets", &target.to_string()])).await
    }

    /// Never retried automatically: each call sends a message.
    pub async fn test_notification_target(&self, target: NotificationTargetId) -> Result<NotificationTest> {
        let url = self.api(&["notification-targets", &target.to_string(), "test"]);
        self.ask(&HubRequest::new(Method::POST, url).retry_safety(RetrySafety::Never)).await
    }
}

// === impl TargetBody ===

impl<'a> TargetBody<'a> {
    fn of(target: &'a CreateNotificationTarget) -> Self {
        let address = match &target.address {
            NotificationAddress::WebPush { endpoint, keys } => AddressBody::WebPush {
                endpoint: endpoint.expose(),
                keys: WebPushKeysBody { p256dh: &keys.p256dh, auth: keys.auth.expose() },
            },
            NotificationAddress::Slack { webhook_url } => AddressBody::Slack { webhook_url: webhook_url.expose() },
            NotificationAddress::Telegram { bot_token, chat_id, api_url } => {
                AddressBody::Telegram { bot_token: bot_token.expose(), chat_id: *chat_id, api_url: api_url.as_deref() }
            }
            NotificationAddress::Feishu { webhook_url, secret } => AddressBody::Feishu {
                webhook_url: webhook_url.expose(),
                secret: secret.as_ref().map(|secret| secret.expose().as_str()),
            },
        };
        Self { name: &target.name, address, choices: target.choices }
    }
}
