//! Sign in with a one-time link or a password, and sign out.

use std::net::{IpAddr, Ipv4Addr};

use askama::Template;
use attache_hub::{identity::LoginLinkTarget, surface::PeerAddress};
use attache_protocol::{Code, Secret};
use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
    response::IntoResponse as _,
};
use serde::Deserialize;

use crate::{
    ConsoleState,
    form::{self, FormFields, SubmittedForm},
    layout::BareLayout,
    options::CookiePolicy,
    page::{address, html, passkeys, redirect_after_form},
    problem::PageResult,
    session,
    text::{self, Text},
    view::{html::Markup, person},
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LoginPageQuery {
    token: Option<String>,
    /// Set after a session has ended.
    over: Option<String>,
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage {
    t: &'static Text,
    shell: BareLayout,
    heading: String,
    lead: String,
    token: Option<String>,
    problem: Option<Markup>,
    up: Markup,
    /// A link from elsewhere led here, so the browser held the session back: our own page asks again.
    asks_again: bool,
    /// The person opened the link themselves. If a page led here, even one of our own, which shows what agents write, they
    /// look whose account it is first.
    submits: bool,
}

/// Changes nothing, so that a link preview doesn't use up the link.
pub(crate) async fn show(
    State(console): State<ConsoleState>,
    Query(link): Query<LoginPageQuery>,
    headers: HeaderMap,
) -> PageResult {
    let t = text::for_request(&headers);
    let token = link.token.filter(|token| !token.is_empty());
    let cookies = console.options.cookies;
    if token.is_none()
        && let Some(secret) = session::cookie(&headers, cookies.session_name())
        && console.hub.authenticate_session(secret).await.is_ok()
    {
        return Ok(entered(&headers, cookies));
    }
    let problem = (token.is_none() && link.over.is_some()).then_some(t.session_over);
    page(&console, &headers, token, problem).await
}

/// Opens a session with a one-time link or with a name and password.
pub(crate) async fn redeem(State(console): State<ConsoleState>, headers: HeaderMap, request: Request) -> PageResult {
    let t = text::for_request(&headers);
    if form::is_foreign(&headers) {
        return Ok(refused(page(&console, &headers, None, Some(t.login_foreign)).await?, StatusCode::FORBIDDEN));
    }
    let address = address_of(&request);
    let fields = FormFields::read(request).await?;
    let (opened, wrong) = match fields.non_empty("token") {
        Some(token) => (console.hub.redeem_login(&token, address).await, t.login_bad_link),
        None if fields.non_empty("passkey").is_some() => {
            (console.hub.sign_in_with_passkey(passkeys::from_browser(&fields)?, address).await, t.login_bad_passkey)
        }
        None => {
            let password = Secret::new(fields.get("password").to_owned());
            (console.hub.sign_in(fields.get("name"), &password, address).await, t.login_wrong)
        }
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) if error.code.http_status() >= 500 => return Err(error.into()),
        Err(error) if error.code == Code::TooManyRequests => {
            let page = page(&console, &headers, None, Some(t.login_too_often)).await?;
            let mut answer = refused(page, StatusCode::TOO_MANY_REQUESTS);
            let wait = error.limited.map_or(60, |left| left.reset);
            answer.headers_mut().insert(header::RETRY_AFTER, wait.into());
            return Ok(answer);
        }
        Err(_) => return Ok(refused(page(&console, &headers, None, Some(wrong)).await?, StatusCode::UNAUTHORIZED)),
    };
    let seconds = opened.expires_at.since(console.hub.now()).as_secs();
    let mut response = entered(&headers, console.options.cookies);
    if let Some(cookie) = session::set(console.options.cookies, opened.secret.expose(), seconds) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// The options for signing in with a passkey.
pub(crate) async fn passkey_options(
    State(console): State<ConsoleState>,
    headers: HeaderMap,
    request: Request,
) -> PageResult {
    let origin = form::origin(&headers)?;
    let options = console.hub.passkey_sign_in(&origin, address_of(&request)).await;
    passkeys::answer(options, text::for_request(&headers))
}

fn address_of(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<PeerAddress>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(peer)| peer.ip())
}

/// Leads to the page that the person had asked for.
fn entered(headers: &HeaderMap, cookies: CookiePolicy) -> Response<Body> {
    let mut response = redirect_after_form(&session::place(headers, cookies));
    if session::cookie(headers, cookies.place_name()).is_some()
        && let Some(forgotten) = session::forget_place(cookies)
    {
        response.headers_mut().append(header::SET_COOKIE, forgotten);
    }
    response
}

pub(crate) async fn sign_out(State(console): State<ConsoleState>, posted: SubmittedForm) -> PageResult {
    posted.session.hub.logout(&posted.session.principal).await?;
    let mut response = redirect_after_form("/login");
    if let Some(cookie) = session::clear(console.options.cookies) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    // Also the service worker and its subscription: the next person at this browser gets nobody else's notifications.
    response.headers_mut().insert("clear-site-data", HeaderValue::from_static("\"cache\", \"storage\""));
    Ok(response)
}

async fn page(
    console: &ConsoleState,
    headers: &HeaderMap,
    token: Option<String>,
    problem: Option<&'static str>,
) -> PageResult {
    let t = text::for_request(headers);
    let here = address("/login", &[("token", token.as_deref().unwrap_or_default())]);
    let origin = console.hub.origin();
    let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
    let target = match &token {
        Some(token) => console.hub.login_target(token).await?,
        None => None,
    };
    let lead = match target {
        Some(LoginLinkTarget { user: Some(user), role }) => t.login_as(&user, person::role(role, t)),
        Some(_) => t.login_ready.to_owned(),
        None if token.is_some() => t.login_ready.to_owned(),
        None => t.login_lead.to_owned(),
    };
    let site = headers.get("sec-fetch-site");
    let is_opened = site.is_some_and(|site| site == "none");
    html(&LoginPage {
        t,
        submits: token.is_some() && is_opened,
        shell: BareLayout::new(headers, &here),
        heading: t.sign_in_to(host),
        lead,
        token,
        problem: problem.map(Markup::marked),
        up: Markup::marked(t.login_up),
        asks_again: site.is_some_and(|site| site == "cross-site"),
    })
}

fn refused(page: Response<Body>, status: StatusCode) -> Response<Body> {
    (status, page).into_response()
}
