//! The messages of chats: text that stays text, and a link to the page where a person decides. A private chat of Telegram has
//! buttons that decide.

#![allow(clippy::disallowed_methods, reason = "this is JSON that we write, not JSON that we relay")]

use attache_protocol::{Timestamp, wire::notification::NotificationService};
use aws_lc_rs::hmac;
use base64ct::{Base64, Encoding as _};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{notice::Notice, telegram::MessageButtons, text::NotificationText};

/// What Feishu says in its 200s, and Telegram.
#[derive(Deserialize)]
struct ChatReply {
    code: Option<i64>,
    msg: Option<String>,
    ok: Option<bool>,
    description: Option<String>,
}

const MAX_REASON: usize = 200;

/// For an incoming webhook: a section of plain text and a button with a link.
pub(super) fn slack(notice: &Notice, t: &NotificationText, page: &str) -> Vec<u8> {
    let plain = |text: &str| json!({"type": "plain_text", "text": text, "emoji": false});
    let mut blocks = vec![json!({"type": "section", "text": plain(&text(notice))})];
    if is_web(page) {
        let button = json!({"type": "button", "text": plain(t.open), "url": page});
        blocks.push(json!({"type": "actions", "elements": [button]}));
    }
    // What a phone's notification shows. It is markup, so that what could be a mention or a link is escaped.
    let fallback = notice.title.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    json!({"text": fallback, "blocks": blocks, "unfurl_links": false}).to_string().into_bytes()
}

/// For `sendMessage` of the Bot API: text without markup, the buttons that decide, and one with a link.
pub(super) fn telegram(
    notice: &Notice,
    t: &NotificationText,
    page: &str,
    chat: i64,
    buttons: Option<&MessageButtons>,
) -> Vec<u8> {
    let mut message = json!({
        "chat_id": chat,
        "text": format!("{}\n\n{page}", text(notice)),
        "link_preview_options": {"is_disabled": true},
    });
    if has_telegram_button(page) {
        message["text"] = text(notice).into();
    }
    if has_telegram_button(page) || buttons.is_some() {
        message["reply_markup"] = telegram_keyboard(t, page, buttons);
    }
    message.to_string().into_bytes()
}

/// The buttons below a message, without those that decide once nothing is left to decide.
pub(super) fn telegram_keyboard(t: &NotificationText, page: &str, buttons: Option<&MessageButtons>) -> Value {
    let mut rows = Vec::new();
    if let Some(MessageButtons { approve, deny }) = buttons {
        let approve = approve.iter().map(|data| json!({"text": t.approve, "callback_data": data}));
        rows.push(approve.chain([json!({"text": t.deny, "callback_data": deny})]).collect::<Vec<_>>());
    }
    if has_telegram_button(page) {
        rows.push(vec![json!({"text": t.open, "url": page})]);
    }
    json!({"inline_keyboard": rows})
}

/// Telegram refuses buttons that lead to plain HTTP.
fn has_telegram_button(page: &str) -> bool {
    page.starts_with("https://")
}

/// For a custom bot: a card of plain text and a button with a link, signed if the bot has a secret.
pub(super) fn feishu(
    notice: &Notice,
    t: &NotificationText,
    page: &str,
    secret: Option<&str>,
    now: Timestamp,
) -> Vec<u8> {
    let plain = |text: &str| json!({"tag": "plain_text", "content": text});
    let mut elements = Vec::new();
    if let Some(body) = &notice.body {
        elements.push(json!({"tag": "div", "text": plain(body)}));
    }
    let button = json!({"tag": "button", "text": plain(t.open), "url": page, "type": "primary"});
    elements.push(json!({"tag": "action", "actions": [button]}));
    let mut message = json!({
        "msg_type": "interactive",
        "card": {"header": {"title": plain(&notice.title)}, "elements": elements},
    });
    if let Some(secret) = secret {
        let timestamp = (now.millis() / 1000).to_string();
        message["sign"] = feishu_signature(&timestamp, secret).into();
        message["timestamp"] = timestamp.into();
    }
    message.to_string().into_bytes()
}

/// The HMAC of nothing, under the time and the secret.
fn feishu_signature(timestamp: &str, secret: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, format!("{timestamp}\n{secret}").as_bytes());
    Base64::encode_string(hmac::sign(&key, b"").as_ref())
}

/// Why the service refused a message, in a response that looks like a success.
pub(super) fn refusal(service: NotificationService, body: &[u8]) -> Option<String> {
    let reply: ChatReply = match service {
        NotificationService::Feishu | NotificationService::Telegram => serde_json::from_slice(body).ok()?,
        NotificationService::WebPush | NotificationService::Slack => return None,
    };
    let is_refused = reply.code.is_some_and(|code| code != 0) || reply.ok == Some(false);
    let reason = reply.msg.or(reply.description).unwrap_or_default();
    is_refused.then(|| format!("The service refused it: {}", reason.chars().take(MAX_REASON).collect::<String>()))
}

fn text(notice: &Notice) -> String {
    match &notice.body {
        Some(body) => format!("{}\n{body}", notice.title),
        None => notice.title.clone(),
    }
}

fn is_web(page: &str) -> bool {
    page.starts_with("https://") || page.starts_with("http://")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python, as Feishu's documentation does: `hmac.new("{time}\n{secret}", digestmod=sha256)`.
    #[test]
    fn a_feishu_message_is_signed_with_the_time_and_the_secret() {
        assert_eq!(feishu_signature("1599360473", "demo"), "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8=");
        assert_ne!(feishu_signature("1599360473", "demo"), feishu_signature("1599360474", "demo"));
    }

    #[test]
    fn a_refusal_inside_a_success_is_found() {
        let feishu = |body: &str| refusal(NotificationService::Feishu, body.as_bytes());
        assert_eq!(feishu(r#"{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}"#), None);
        assert_eq!(
            feishu(r#"{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}"#),
            Some(
                "The service refused it: sign match fail or timestamp is not within one hour from current time"
                    .to_owned()
            )
        );
        assert_eq!(refusal(NotificationService::Telegram, br#"{"ok":true,"result":{"message_id":4}}"#), None);
        assert_eq!(refusal(NotificationService::Slack, b"ok"), None);
        assert_eq!(refusal(NotificationService::WebPush, b""), None);
    }
}
