//! Turns a notice into the request that its target's service takes.

use attache_client::egress;
use attache_protocol::{
    Json, Secret,
    wire::notification::{NotificationAddress, NotificationService, PushAction, PushPayload, WebPushKeys},
};
use attache_store::record::notification::NotificationTargetRecord;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use super::{
    DecisionTicket, NotificationRequest, chat,
    notice::Notice,
    telegram,
    text::NotificationText,
    web_push::{MAX_PLAIN, ReceiverKeys},
};
use crate::{Error, Handle, Principal, Result};

/// The complete address of a target, as the hub seals it.
#[derive(Serialize, Deserialize)]
#[serde(tag = "service", rename_all = "snake_case")]
pub(crate) enum TargetAddress {
    WebPush { endpoint: String, p256dh: String, auth: String },
    Slack { webhook_url: String },
    Telegram { api_url: String, bot_token: String, chat_id: i64 },
    Feishu { webhook_url: String, secret: Option<String> },
}

/// Why an address can't be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetAddressError {
    pub(crate) field: &'static str,
    pub(crate) problem: &'static str,
}

/// What is said to the service worker after a decision.
#[derive(Serialize)]
struct DecisionTexts {
    approve: &'static str,
    deny: &'static str,
    failed: &'static str,
}

const TELEGRAM: &str = "https://api.telegram.org";

// === impl TargetAddress ===

impl TargetAddress {
    pub(crate) fn new(given: NotificationAddress) -> std::result::Result<Self, TargetAddressError> {
        Ok(match given {
            NotificationAddress::WebPush { endpoint, keys: WebPushKeys { p256dh, auth } } => {
                let (endpoint, auth) = (endpoint.expose().clone(), auth.expose().clone());
                if ReceiverKeys::read(&p256dh, &auth).is_none() {
                    let problem = "must be the `p256dh` and `auth` of a browser's subscription";
                    return Err(TargetAddressError { field: "address.keys", problem });
                }
                Self::WebPush { endpoint, p256dh, auth }
            }
            NotificationAddress::Slack { webhook_url } => Self::Slack { webhook_url: webhook_url.expose().clone() },
            NotificationAddress::Telegram { bot_token, chat_id, api_url } => {
                let bot_token = bot_token.expose().clone();
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'_' | b'-');
                if bot_token.is_empty() || !bot_token.bytes().all(is_plain) {
                    let problem = "must be a bot token from @BotFather";
                    return Err(TargetAddressError { field: "address.bot_token", problem });
                }
                Self::Telegram { api_url: api_url.unwrap_or_else(|| TELEGRAM.to_owned()), bot_token, chat_id }
            }
            NotificationAddress::Feishu { webhook_url, secret } => Self::Feishu {
                webhook_url: webhook_url.expose().clone(),
                secret: secret.map(|secret| secret.expose().clone()),
            },
        })
    }

    /// The field of the request that names the URL, and the URL.
    pub(crate) fn url(&self) -> (&'static str, String) {
        match self {
            Self::WebPush { endpoint, .. } => ("address.endpoint", endpoint.clone()),
            Self::Slack { webhook_url } | Self::Feishu { webhook_url, .. } => {
                ("address.webhook_url", webhook_url.clone())
            }
            Self::Telegram { api_url, bot_token, .. } => {
                ("address.api_url", format!("{}/bot{bot_token}/sendMessage", api_url.trim_end_matches('/')))
            }
        }
    }

    /// Whether two addresses are the same place: their digest.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let chat = if let Self::Telegram { chat_id, .. } = self { *chat_id } else { 0 };
        *blake3::hash(format!("{} {chat}", self.url().1).as_bytes()).as_bytes()
    }

    pub(crate) fn origin(&self) -> String {
        egress::origin(&self.url().1)
    }

    pub(crate) fn seal(&self, hub: &Handle, digest: &[u8; 32]) -> Vec<u8> {
        let plain = serde_json::to_vec(self).expect("texts serialise to JSON");
        hub.seal(&context(digest), &plain)
    }

    pub(super) fn unseal(hub: &Handle, target: &NotificationTargetRecord) -> Result<Self> {
        let plain = hub.unseal(&context(&target.address), &target.sealed).map_err(|error| Error::internal(&error))?;
        serde_json::from_slice(plain.expose()).map_err(|error| Error::internal(&error))
    }
}

fn context(digest: &[u8; 32]) -> String {
    format!("notification target {}", attache_protocol::digest::hex(digest))
}

/// The request that tells `by` of this.
pub(super) fn request(
    hub: &Handle,
    by: &Principal,
    target: &NotificationTargetRecord,
    notice: &Notice,
) -> Result<NotificationRequest> {
    let address = TargetAddress::unseal(hub, target)?;
    let (service, (_, url)) = (target.service, address.url());
    let t = NotificationText::of(target.choices.language);
    let page = format!("{}{}", hub.origin(), notice.path);
    let (mut headers, body) = match &address {
        TargetAddress::WebPush { endpoint, p256dh, auth } => {
            let keys = ReceiverKeys::read(p256dh, auth).ok_or_else(|| Error::internal(&"unreadable push keys"))?;
            let payload = payload(hub, by, notice, t);
            (push_headers(hub, endpoint, notice)?, keys.encrypt(hub.env(), &payload)?)
        }
        TargetAddress::Slack { .. } => (HeaderMap::new(), chat::slack(notice, t, &page)),
        TargetAddress::Telegram { chat_id, .. } => {
            let buttons = telegram::buttons(hub, target, notice, *chat_id);
            (HeaderMap::new(), chat::telegram(notice, t, &page, *chat_id, buttons.as_ref()))
        }
        TargetAddress::Feishu { secret, .. } => {
            (HeaderMap::new(), chat::feishu(notice, t, &page, secret.as_deref(), hub.env().wall()))
        }
    };
    if service != NotificationService::WebPush {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(NotificationRequest { service, url: Secret::new(url), headers, body })
}

/// What the service worker gets. The text gives way if it is too long.
fn payload(hub: &Handle, by: &Principal, notice: &Notice, t: &NotificationText) -> Vec<u8> {
    let mut actions = Vec::new();
    if let Some((offered, key)) = notice.decision.as_ref().zip(by.key()) {
        let button = |action: &str, title: &str, approved| PushAction {
            action: action.to_owned(),
            title: title.to_owned(),
            ticket: Some(
                DecisionTicket { permission: offered.permission, subject: offered.subject.clone(), key, approved }
                    .write(hub),
            ),
        };
        match offered.may_approve {
            true => actions.push(button("approve", t.approve, true)),
            false => actions.push(PushAction { action: "open".to_owned(), title: t.open.to_owned(), ticket: None }),
        }
        actions.push(button("deny", t.deny, false));
    }
    let texts = DecisionTexts { approve: t.approved, deny: t.denied, failed: t.undecided };
    let payload = PushPayload {
        title: notice.title.clone(),
        body: notice.body.clone().unwrap_or_default(),
        tag: notice.tag.clone(),
        path: notice.path.clone(),
        texts: (!actions.is_empty()).then(|| Json::of(&texts)),
        actions,
    };
    let write = |payload: &PushPayload| serde_json::to_vec(payload).expect("texts serialise to JSON");
    let written = write(&payload);
    if written.len() <= MAX_PLAIN {
        return written;
    }
    // Nothing is approved that isn't shown.
    let actions = payload.actions.into_iter().filter(|action| action.action != "approve").collect();
    write(&PushPayload { body: String::new(), actions, ..payload })
}

fn push_headers(hub: &Handle, endpoint: &str, notice: &Notice) -> Result<HeaderMap> {
    let authorization = hub.vapid_key().authorization(&egress::origin(endpoint), &hub.origin(), hub.env().wall())?;
    let mut authorization = HeaderValue::try_from(authorization).map_err(|error| Error::internal(&error))?;
    authorization.set_sensitive(true);
    let topic = Base64UrlUnpadded::encode_string(&blake3::hash(notice.tag.as_bytes()).as_bytes()[..24]);
    let topic = HeaderValue::try_from(topic).map_err(|error| Error::internal(&error))?;
    let urgency = if notice.is_urgent { "high" } else { "normal" };
    Ok(HeaderMap::from_iter([
        (header::AUTHORIZATION, authorization),
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_ENCODING, HeaderValue::from_static("aes128gcm")),
        (HeaderName::from_static("ttl"), HeaderValue::from(notice.lifetime.as_secs())),
        (HeaderName::from_static("urgency"), HeaderValue::from_static(urgency)),
        (HeaderName::from_static("topic"), topic),
    ]))
}
