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
    SignedOut(SignedOutVisit),
    /// A template failed to render, which is a bug.
    Template,
}

/// How an unauthenticated request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SignedOutVisit {
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
    layout: BareLayout,
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
            Self::SignedOut(SignedOutVisit::First) => return Redirect::to("/login").into_response(),
            Self::SignedOut(SignedOutVisit::Over) => return Redirect::to("/login?over=1").into_response(),
            fault => fault.status().into_response(),
        };
        response.extensions_mut().insert(self);
        response
    }
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
            Self::SignedOut(_) => StatusCode::UNAUTHORIZED,
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
            Self::SignedOut(_) => Code::Unauthenticated,
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
            Self::SignedOut(_) => (t.sign_in, t.session_over.into(), none),
            Self::Template => (t.error_other, none.clone(), Cow::Borrowed(Code::Internal.hint())),
            Self::Hub(error) => {
                let hint = error.hint.clone().unwrap_or(Cow::Borrowed(error.code.hint()));
                let heading = match error.code {
                    Code::NotFound => return (t.error_not_found, t.error_not_found_text.into(), none),
                    Code::Forbidden => return (t.error_forbidden, error.message.clone(), t.not_allowed_text.into()),
                    _ => t.error_other,
                };
                (heading, error.message.clone(), hint)
            }
        }
    }
}

// === impl FormRefusal ===

impl TryFrom<attache_hub::Error> for FormRefusal {
    type Error = PageError;

    /// Other errors have their own page.
    fn try_from(error: attache_hub::Error) -> PageResult<Self> {
        let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if !status.is_client_error() || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND) {
            return Err(error.into());
        }
        let message = match &error.hint {
            Some(hint) => format!("{} {hint}", error.message),
            None => error.message.into_owned(),
        };
        Ok(Self { status, message })
    }
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
        layout: BareLayout::new(headers),
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
