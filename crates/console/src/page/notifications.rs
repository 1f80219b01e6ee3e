//! Where a person gets notifications, and what the service worker needs: its script, the offline page and decisions.

use askama::Template;
use attache_hub::{
    control::DecisionOrigin,
    identity::{AccessVerdict, Action},
    surface::PeerAddress,
};
use attache_protocol::{
    NotificationTargetId, Secret,
    wire::notification::{
        CreateNotificationTarget, NotificationAddress, NotificationChoices, NotificationDetail, NotificationLanguage,
        NotificationService, NotificationTarget, UpdateNotificationTarget, WebPushKeys,
    },
};
use axum::{
    Extension,
    body::{Body, Bytes},
    extract::Path,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::{Html, IntoResponse as _},
};
use serde::Deserialize;

use crate::{
    assets,
    form::{self, FormFields, SubmittedForm},
    layout::PageLayout,
    page::{html_as, redirect_after_form},
    problem::{FormRefusal, PageError, PageResult},
    session::BrowserSession,
    text::{self, Text},
};

const SERVICE_WORKER: &str = include_str!("../../assets/service-worker.js");

#[derive(Template)]
#[template(path = "notifications.html")]
struct NotificationsPage {
    t: &'static Text,
    shell: PageLayout,
    /// The hub's key for Web Push.
    key: String,
    may_set: bool,
    targets: Vec<TargetListRow>,
    problem: Option<String>,
}

#[derive(Template)]
#[template(path = "offline.html")]
struct OfflinePage {
    t: &'static Text,
    assets: &'static str,
}

#[derive(Debug)]
struct TargetListRow {
    id: String,
    name: String,
    service: &'static str,
    origin: String,
    choices: String,
    approvals: bool,
    runs: bool,
    full: bool,
    current: bool,
}

/// What the service worker sends when a person presses a button of a notification.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotificationDecision {
    ticket: String,
}

pub(crate) async fn list(session: BrowserSession) -> PageResult {
    page(&session, None).await
}

/// The script that a browser runs while no page is open. Its scope is the whole console, and it changes with the assets.
pub(crate) async fn service_worker() -> Response<Body> {
    let script = format!("const BASE = \"{}\";\n{SERVICE_WORKER}", assets::base());
    let headers = [(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers.map(|(name, value)| (name, HeaderValue::from_static(value))), script).into_response()
}

/// The same for everybody.
pub(crate) async fn offline(headers: HeaderMap) -> PageResult {
    let page = OfflinePage { t: text::for_request(&headers), assets: assets::base() };
    Ok(Html(page.render()?).into_response())
}

pub(crate) async fn subscribe(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let secret = |name| Secret::new(fields.get(name).to_owned());
    let keys = WebPushKeys { p256dh: fields.get("p256dh").to_owned(), auth: secret("auth") };
    let request = CreateNotificationTarget {
        name: fields.get("name").trim().to_owned(),
        address: NotificationAddress::WebPush { endpoint: secret("endpoint"), keys },
        choices: choices(&fields, session.t),
    };
    match session.hub.create_notification_target(&session.principal, request).await {
        Ok(_) => Ok(redirect_after_form("/notifications?said=notify_on")),
        Err(error) => page(&session, Some(FormRefusal::new(error, session.t)?)).await,
    }
}

pub(crate) async fn update(Path(id): Path<String>, posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let request = UpdateNotificationTarget { choices: choices(&fields, session.t) };
    session.hub.update_notification_target(&session.principal, target(&id)?, request).await?;
    Ok(redirect_after_form("/notifications?said=saved"))
}

pub(crate) async fn remove(Path(id): Path<String>, posted: SubmittedForm) -> PageResult {
    posted.session.hub.remove_notification_target(&posted.session.principal, target(&id)?).await?;
    Ok(redirect_after_form("/notifications?said=notify_off"))
}

pub(crate) async fn test(Path(id): Path<String>, posted: SubmittedForm) -> PageResult {
    let session = posted.session;
    let tested = match session.hub.test_notification_target(&session.principal, target(&id)?).await {
        Ok(tested) => tested,
        Err(error) => return page(&session, Some(FormRefusal::new(error, session.t)?)).await,
    };
    match tested.error {
        None => Ok(redirect_after_form("/notifications?said=notify_tested")),
        Some(error) => {
            let message = session.t.notify_test_failed(&error);
            page(&session, Some(FormRefusal { status: StatusCode::BAD_GATEWAY, message })).await
        }
    }
}

/// Decides with the session of the browser. Another site can't: it has no ticket, its requests don't carry the session, and
/// it may not send JSON here.
pub(crate) async fn decide(
    session: BrowserSession,
    peer: Option<Extension<PeerAddress>>,
    headers: HeaderMap,
    body: Bytes,
) -> PageResult {
    if form::is_foreign(&headers) {
        return Err(PageError::Foreign);
    }
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != "application/json") {
        return Err(PageError::Csrf);
    }
    let NotificationDecision { ticket } = serde_json::from_slice(&body).map_err(|_| PageError::Form)?;
    let from = peer.map(|Extension(PeerAddress(address))| address.ip().to_string());
    let place = DecisionOrigin { via: "notification", from };
    session.hub.decide_from_notification(&session.principal, &ticket, place).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn target(id: &str) -> PageResult<NotificationTargetId> {
    id.parse().map_err(|_| PageError::NoSuchPath)
}

/// Notifications are in the language of the page on which a person chose them.
fn choices(fields: &FormFields, t: &Text) -> NotificationChoices {
    NotificationChoices {
        approvals: fields.get("approvals") == "true",
        runs: fields.get("runs") == "true",
        detail: NotificationDetail::from_text(fields.get("detail")).unwrap_or_default(),
        language: t.lang.split('-').next().and_then(NotificationLanguage::from_text).unwrap_or_default(),
    }
}

async fn page(session: &BrowserSession, refusal: Option<FormRefusal>) -> PageResult {
    let (hub, by, t) = (&session.hub, &session.principal, session.t);
    let shell = PageLayout::new(session).await?;
    let listed = hub.notification_targets(by).await?;
    let (status, problem) = refusal.map_or((StatusCode::OK, None), |refusal| (refusal.status, Some(refusal.message)));
    html_as(
        status,
        &NotificationsPage {
            t,
            key: listed.web_push_key,
            may_set: by.verdict(Action::SetNotifications) != AccessVerdict::No,
            targets: listed.notification_targets.into_iter().map(|target| TargetListRow::new(target, t)).collect(),
            problem,
            shell,
        },
    )
}

// === impl TargetListRow ===

impl TargetListRow {
    fn new(target: NotificationTarget, t: &'static Text) -> Self {
        let NotificationChoices { approvals, runs, detail, language: _ } = target.choices;
        let full = detail == NotificationDetail::Full;
        let detail = if full { t.notify_full } else { t.notify_title_only };
        let chosen = [approvals.then_some(t.notify_approvals), runs.then_some(t.notify_runs), Some(detail)];
        Self {
            id: target.notification_target_id.to_string(),
            name: target.name,
            service: match target.service {
                NotificationService::WebPush => t.notify_browser,
                NotificationService::Slack => "Slack",
                NotificationService::Telegram => "Telegram",
                NotificationService::Feishu => t.notify_feishu,
            },
            origin: target.origin,
            choices: chosen.into_iter().flatten().collect::<Vec<_>>().join(" · "),
            approvals,
            runs,
            full,
            current: target.current,
        }
    }
}
