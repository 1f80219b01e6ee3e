//! Errors, rendered as console pages.

use std::borrow::Cow;

use askama::Template;
use attache_protocol::Code;
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header},
    middleware::Next,
    response::{Html, IntoResponse, Redirect},
};

use crate::{
    layout::BareLayout,
    text::{self, Text},
};

/// Why a page can't be shown. A middleware renders it in the language of the request.
#[derive(Debug, Clone)]
pub(crate) enum PageError {
    Hub(attache_hub::Error),
    NoSuchPath,
    WrongMethod,
    /// The form's CSRF token is missing or belongs to another session.
    Csrf,
    /// The form came from another site.
    Foreign,
    /// A field of the form is missing.
    Form,
    /// The session has ended or doesn't exist.
    SignedOut(UnauthenticatedVisit, Option<HeaderValue>),
    /// A template failed to render, which is a bug.
    Template,
}

/// How an unauthenticated request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnauthenticatedVisit {
    /// From the address bar: show the login page.
    First,
    /// The same, with an ended session.
    Over,
    /// From one of our modules, which reloads the page on 401.
    Module,
}

/// The hub refused a form for a reason that the user can fix. The page is shown again.
#[derive(Debug, Clone)]
pub(crate) struct FormRefusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

pub(crate) type PageResult<T = Response<Body>> = std::result::Result<T, PageError>;

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    t: &'static Text,
    shell: BareLayout,
    status: u16,
    code: &'a str,
    heading: &'a str,
    message: Cow<'a, str>,
    hint: Cow<'a, str>,
    retry: Option<&'a str>,
}

// === impl PageError ===

impl From<attache_hub::Error> for PageError {
    fn from(error: attache_hub::Error) -> Self {
        Self::Hub(error)
    }
}

impl From<askama::Error> for PageError {
    fn from(error: askama::Error) -> Self {
        tracing::error!(%error, "a template failed");
        Self::Template
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response<Body> {
        let mut response = match &self {
            Self::SignedOut(UnauthenticatedVisit::First, place) => return to_login("/login", place.clone()),
            Self::SignedOut(UnauthenticatedVisit::Over, place) => return to_login("/login?over=1", place.clone()),
            fault => fault.status().into_response(),
        };
        response.extensions_mut().insert(self);
        response
    }
}

/// The login page, with a cookie for the page to show afterwards.
fn to_login(path: &str, place: Option<HeaderValue>) -> Response<Body> {
    let mut response = Redirect::to(path).into_response();
    if let Some(place) = place {
        response.headers_mut().insert(header::SET_COOKIE, place);
    }
    response
}

impl PageError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Hub(error) => {
                StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::NoSuchPath => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Csrf | Self::Foreign => StatusCode::FORBIDDEN,
            Self::Form => StatusCode::BAD_REQUEST,
            Self::SignedOut(..) => StatusCode::UNAUTHORIZED,
            Self::Template => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Hub(error) => error.code,
            Self::NoSuchPath => Code::NoSuchPath,
            Self::WrongMethod => Code::MethodNotAllowed,
            Self::Csrf => Code::Forbidden,
            Self::Foreign => Code::ForeignOrigin,
            Self::Form => Code::InvalidRequest,
            Self::SignedOut(..) => Code::Unauthenticated,
            Self::Template => Code::Internal,
        }
    }

    /// Heading, message and hint.
    fn message_parts(&self, t: &'static Text) -> (&'static str, Cow<'static, str>, Cow<'static, str>) {
        let none = Cow::Borrowed("");
        match self {
            Self::NoSuchPath | Self::WrongMethod => (t.error_not_found, t.error_not_found_text.into(), none),
            Self::Csrf => (t.error_csrf, t.error_csrf_text.into(), t.error_csrf_hint.into()),
            Self::Foreign => (t.error_csrf, t.login_foreign.into(), none),
            Self::Form => (t.error_other, t.error_form_text.into(), t.error_csrf_hint.into()),
            Self::SignedOut(..) => (t.sign_in, t.session_over.into(), none),
            Self::Template => (t.error_other, none, t.refused_internal_do.into()),
            Self::Hub(error) => match error.code {
                Code::NotFound => (t.error_not_found, t.error_not_found_text.into(), none),
                Code::Forbidden => (t.not_allowed, none, t.not_allowed_text.into()),
                code => {
                    let words = error.hint.as_deref().unwrap_or(code.hint());
                    let hint = by_code(code, t).map(|(_, hint)| Cow::Borrowed(hint));
                    (t.error_other, message(error, t), hint.unwrap_or_else(|| t.refused_words_do(words).into()))
                }
            },
        }
    }
}

// === impl FormRefusal ===

impl FormRefusal {
    /// Other errors have their own page.
    pub(crate) fn new(error: attache_hub::Error, t: &'static Text) -> PageResult<Self> {
        let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if !status.is_client_error() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND) {
            return Err(error.into());
        }
        let message = message(&error, t);
        let words = |hint: Cow<'_, str>| Cow::Owned(t.refused_words_do(hint));
        let hint = error.hint.map(|hint| by_code(error.code, t).map_or_else(|| words(hint), |(_, hint)| hint.into()));
        Ok(Self { status, message: hint.map_or_else(|| message.to_string(), |hint| t.refused_and(&message, hint)) })
    }
}

/// Why the hub refused, in the page's language. Only a code without its own text is shown in the hub's words, which
/// are English.
pub(crate) fn message(error: &attache_hub::Error, t: &'static Text) -> Cow<'static, str> {
    by_code(error.code, t).map_or_else(|| t.refused_words(&error.message).into(), |(message, _)| message.into())
}

/// The message and the hint for an error code. `None` if only the hub's message says what is wrong.
fn by_code(code: Code, t: &'static Text) -> Option<(&'static str, &'static str)> {
    Some(match code {
        Code::NotFound | Code::NoSuchPath | Code::MethodNotAllowed => (t.error_not_found_text, ""),
        Code::Unauthenticated => (t.session_over, ""),
        Code::ForeignOrigin => (t.login_foreign, ""),
        Code::PairingFailed => (t.pair_bad_code, ""),
        Code::TooManyRequests => (t.login_too_often, ""),
        Code::NameTaken => (t.refused_name_taken, t.refused_name_taken_do),
        Code::AgentArchived => (t.refused_agent_archived, t.refused_agent_archived_do),
        Code::RunEnded | Code::NotWaiting => (t.refused_run_ended, t.refused_run_ended_do),
        Code::KeyReused => (t.refused_key_reused, t.refused_key_reused_do),
        Code::VersionChanged => (t.refused_version_changed, t.refused_version_changed_do),
        Code::PasskeyRequired => (t.refused_passkey, t.refused_passkey_do),
        Code::PasskeyRefused => (t.refused_passkey_wrong, t.refused_passkey_wrong_do),
        Code::LastOwner => (t.refused_last_owner, t.refused_last_owner_do),
        Code::IsPeer => (t.refused_is_peer, t.refused_is_peer_do),
        Code::DeviceOffline => (t.refused_device_offline, t.refused_device_offline_do),
        Code::Internal => (t.refused_internal, t.refused_internal_do),
        Code::DiskFull => (t.refused_disk_full, t.refused_disk_full_do),
        Code::DiskLow => (t.refused_disk_low, t.refused_disk_low_do),
        Code::ReadOnly => (t.refused_read_only, t.refused_read_only_do),
        Code::DatabaseUnreachable => (t.refused_database_unreachable, t.refused_database_unreachable_do),
        Code::ServedElsewhere => (t.refused_served_elsewhere, t.refused_served_elsewhere_do),
        Code::Unknown => (t.refused_unknown, t.refused_unknown_do),
        Code::Overloaded => (t.refused_overloaded, t.refused_overloaded_do),
        Code::Draining => (t.refused_draining, t.refused_draining_do),
        _ => return None,
    })
}

/// Renders errors as pages, in the language of the request.
pub(crate) async fn render(request: Request, next: Next) -> Response<Body> {
    let headers = request.headers().clone();
    // A link can't resubmit a form.
    let path = (request.method() == Method::GET).then(|| request.uri().path().to_owned());
    let response = next.run(request).await;
    let Some(fault) = response.extensions().get::<PageError>().cloned() else { return response };
    page(&fault, &headers, path.as_deref())
}

fn page(fault: &PageError, headers: &HeaderMap, path: Option<&str>) -> Response<Body> {
    let t = text::for_request(headers);
    let (heading, message, hint) = fault.message_parts(t);
    let status = fault.status();
    let retry = path.filter(|_| status != StatusCode::NOT_FOUND);
    let page = ProblemPage {
        t,
        // A page that isn't there may have a secret in its address.
        shell: BareLayout::new(headers, retry.unwrap_or("/runs")),
        status: status.as_u16(),
        code: fault.code().as_str(),
        heading,
        message,
        hint,
        retry,
    };
    let html = page.render().unwrap_or_else(|_| heading.to_owned());
    let mut response = (status, Html(html)).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

pub(crate) async fn no_such_path() -> PageError {
    PageError::NoSuchPath
}

pub(crate) async fn wrong_method() -> PageError {
    PageError::WrongMethod
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    /// The hub's message is English. A code leaves this list when the catalogue gets a text for it.
    #[test]
    fn only_these_codes_are_told_in_the_hubs_words() {
        let t = Language::En.text();
        let without = Code::ALL.iter().filter(|code| by_code(**code, t).is_none()).map(|code| code.as_str());
        assert_eq!(
            without.collect::<Vec<_>>().join(" "),
            "invalid_request invalid_json json_too_deep runtime_revoked runtime_superseded token_replaced \
             forbidden wrong_host stale_epoch not_running in_use already_begun already_decided approval_required \
             approval_denied loop_refused resume_refused not_registered tool_refused invalid_frame busy \
             pairing_pending pairing_rejected request_timeout too_large log_full headers_too_large \
             unsupported_media_type range_not_satisfiable access_denied egress_refused rules_invalid is_paired \
             nothing_to_trust peer_not_allowed folder_not_allowed policy_invalid still_lent quota_exceeded \
             storage_failed unreachable"
        );
    }

    #[test]
    fn a_refusal_is_told_in_the_pages_language() {
        let told = |code, language: Language| {
            let error = attache_hub::Error::new(code, "The hub’s words.").hint("The hub’s hint.");
            FormRefusal::new(error, language.text()).map(|refusal| (refusal.status.as_u16(), refusal.message)).unwrap()
        };
        let of = |status: u16, text: &str| (status, text.to_owned());
        let english = |code| told(code, Language::En);
        assert_eq!(english(Code::NameTaken), of(409, "This name is already taken. Choose another name."));
        assert_eq!(english(Code::InvalidRequest), of(400, "The hub’s words. The hub’s hint."));
        let chinese = |code| told(code, Language::Zh);
        assert_eq!(chinese(Code::NameTaken), of(409, "此名称已被使用。请换一个名称。"));
        assert_eq!(chinese(Code::InvalidRequest), of(400, "Hub 拒绝了请求：“The hub’s words.”建议：The hub’s hint."));
    }
}
