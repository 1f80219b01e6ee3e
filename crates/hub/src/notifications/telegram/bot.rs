//! A bot of Telegram, over the Bot API.

#![allow(clippy::disallowed_methods, reason = "this is JSON that we write, not JSON that we relay")]

use std::time::Duration;

use attache_client::egress::{EgressGuard, EgressLimits};
use attache_protocol::Secret;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::Handle;

/// One bot at one server of the Bot API.
pub(super) struct TelegramBot {
    api_url: String,
    token: Secret<String>,
    guard: EgressGuard,
}

/// The same bot at the same server, without its secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BotId([u8; 32]);

/// Why the Bot API didn't do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BotError {
    /// Somebody else receives the updates: another program, or a webhook.
    Conflict(String),
    /// The token is wrong, or was revoked.
    Unauthorized,
    TooMany(Duration),
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) id: i64,
    /// `None` if it is something else.
    pub(super) pressed: Option<PressedButton>,
}

/// A `callback_query`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct PressedButton {
    pub(super) id: String,
    pub(super) from: TelegramUser,
    pub(super) message: BotMessage,
    pub(super) data: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct TelegramUser {
    pub(super) id: i64,
    pub(super) is_bot: bool,
}

/// The message with the button. Without a text if it is too old.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct BotMessage {
    pub(super) message_id: i64,
    pub(super) chat: TelegramChat,
    #[serde(default)]
    pub(super) text: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct TelegramChat {
    pub(super) id: i64,
    #[serde(rename = "type")]
    pub(super) kind: String,
}

#[derive(Deserialize)]
struct BotReply {
    ok: bool,
    #[serde(default)]
    result: Value,
    #[serde(default)]
    error_code: Option<u16>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<BotReplyParameters>,
}

#[derive(Deserialize)]
struct BotReplyParameters {
    #[serde(default)]
    retry_after: Option<u64>,
}

/// How long Telegram holds a request for updates open.
const POLL_TIMEOUT: Duration = Duration::from_secs(25);
/// How long the response may take on top.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// How many updates come at once.
const MAX_UPDATES: u32 = 50;
const MAX_REASON: usize = 200;

// === impl TelegramBot ===

impl TelegramBot {
    pub(super) fn new(hub: &Handle, api_url: &str, token: String) -> Self {
        let total = POLL_TIMEOUT + REPLY_TIMEOUT;
        let guard = hub.options().egress.within(EgressLimits { total, ..EgressLimits::default() });
        Self { api_url: api_url.trim_end_matches('/').to_owned(), token: Secret::new(token), guard }
    }

    pub(super) fn id(&self) -> BotId {
        BotId(*blake3::hash(format!("{} {}", self.api_url, self.token.expose()).as_bytes()).as_bytes())
    }

    /// Waits for buttons that were pressed. `after` confirms everything up to that update; without it, what nobody has
    /// confirmed comes again.
    pub(super) async fn updates(&self, after: Option<i64>) -> Result<Vec<Update>, BotError> {
        let mut request = json!({
            "timeout": POLL_TIMEOUT.as_secs(),
            "limit": MAX_UPDATES,
            "allowed_updates": ["callback_query"],
        });
        if let Some(after) = after {
            request["offset"] = after.saturating_add(1).into();
        }
        let updates: Vec<Value> = self.call("getUpdates", &request).await?;
        Ok(updates.iter().filter_map(Update::read).collect())
    }

    /// Ends the spinner on the button.
    pub(super) async fn answer(&self, pressed: &PressedButton, text: &str) -> Result<(), BotError> {
        let request = json!({"callback_query_id": pressed.id, "text": text});
        self.call::<Value>("answerCallbackQuery", &request).await.map(drop)
    }

    /// Says below the message what became of it, and replaces its buttons.
    pub(super) async fn close(&self, message: &BotMessage, text: &str, keyboard: &Value) -> Result<(), BotError> {
        let mut request =
            json!({"chat_id": message.chat.id, "message_id": message.message_id, "reply_markup": keyboard});
        let Some(before) = &message.text else {
            return self.call::<Value>("editMessageReplyMarkup", &request).await.map(drop);
        };
        request["text"] = format!("{before}\n\n{text}").into();
        request["link_preview_options"] = json!({"is_disabled": true});
        self.call::<Value>("editMessageText", &request).await.map(drop)
    }

    async fn call<T: DeserializeOwned>(&self, method: &str, request: &Value) -> Result<T, BotError> {
        let failed = |failure: &dyn std::fmt::Display| BotError::Failed(short(&failure.to_string()));
        let url = format!("{}/bot{}/{method}", self.api_url, self.token.expose());
        let target = self.guard.check(&url).map_err(|refused| failed(&refused))?;
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let reply = self.guard.post(&target, headers, request.to_string().into()).await;
        let reply = reply.map_err(|failure| failed(&failure))?;
        let Ok(said) = serde_json::from_slice::<BotReply>(&reply.body) else {
            return Err(BotError::Failed(format!("Telegram responded with {}", reply.status)));
        };
        if said.ok {
            return serde_json::from_value(said.result).map_err(|error| failed(&error));
        }
        let reason = short(&said.description.unwrap_or_default());
        let retry_after = said.parameters.and_then(|parameters| parameters.retry_after).map(Duration::from_secs);
        Err(match StatusCode::from_u16(said.error_code.unwrap_or(reply.status)) {
            Ok(StatusCode::CONFLICT) => BotError::Conflict(reason),
            Ok(StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND | StatusCode::FORBIDDEN) => BotError::Unauthorized,
            Ok(StatusCode::TOO_MANY_REQUESTS) => BotError::TooMany(retry_after.unwrap_or(REPLY_TIMEOUT)),
            _ => BotError::Failed(reason),
        })
    }
}

fn short(text: &str) -> String {
    text.chars().take(MAX_REASON).map(|one| if one.is_control() { ' ' } else { one }).collect()
}

// === impl Update ===

impl Update {
    /// `None` without an id, which Telegram never sends. Whatever else is odd about it, it counts as received.
    fn read(update: &Value) -> Option<Self> {
        let id = update["update_id"].as_i64()?;
        Some(Self { id, pressed: PressedButton::deserialize(&update["callback_query"]).ok() })
    }
}

// === impl BotId ===

impl BotId {
    /// The name under which one node of a hub leases the bot.
    pub(super) fn lease(self) -> String {
        format!("telegram/{}", attache_protocol::digest::hex(&self.0[..16]))
    }
}
