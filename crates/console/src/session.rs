//! Who is looking: the session's cookie, and the token that proves that a form is of the same session.

use std::net::{IpAddr, Ipv4Addr};

use attache_hub::{
    Principal,
    surface::{PeerAddress, note_principal},
};
use attache_protocol::{log::hex, secret::SecretHash};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, header, request::Parts},
};

use crate::{
    ConsoleState,
    layout::Theme,
    options::CookiePolicy,
    problem::{PageError, SignedOutVisit},
    text::{self, Text},
};

const CSRF: &str = "attache console 2026 form token";

/// A person who is signed in, and how they want to be spoken to.
#[derive(Debug, Clone)]
pub(crate) struct BrowserSession {
    pub(crate) principal: Principal,
    /// Goes into every form; derived, so that nothing needs to be stored.
    pub(crate) csrf: String,
    pub(crate) t: &'static Text,
    pub(crate) theme: Theme,
}

// === impl BrowserSession ===

impl BrowserSession {
    /// Whether the form was rendered for who is signed in. Both sides are hashed, so the comparison leaks nothing.
    pub(crate) fn verify_csrf(&self, token: &str) -> bool {
        SecretHash::of(&self.csrf).matches(token)
    }
}

impl FromRequestParts<ConsoleState> for BrowserSession {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &ConsoleState) -> Result<Self, PageError> {
        let name = console.options.cookies.session_name();
        let Some(secret) = cookie(&parts.headers, name) else {
            return Err(PageError::SignedOut(visit(&parts.headers, SignedOutVisit::First)));
        };
        match console.hub.authenticate_session(secret).await {
            Ok(principal) => {
                note_principal(&parts.extensions, &principal);
                Ok(Self {
                    principal,
                    csrf: hex(&blake3::derive_key(CSRF, secret.as_bytes())),
                    t: text::for_request(&parts.headers),
                    theme: Theme::of(&parts.headers),
                })
            }
            Err(error) if error.code.http_status() >= 500 => Err(PageError::Hub(error)),
            // Somebody who guesses is told so only a few times a minute.
            Err(_) if let Err(error) = console.hub.refuse_credential(address(parts)) => Err(PageError::Hub(error)),
            Err(_) => Err(PageError::SignedOut(visit(&parts.headers, SignedOutVisit::Over))),
        }
    }
}

/// Where the browser is; a caller in this process has no address.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<PeerAddress>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(address)| address.ip())
}

/// A module of ours gets a status that it understands; a person gets the login page.
fn visit(headers: &HeaderMap, person: SignedOutVisit) -> SignedOutVisit {
    let mode = headers.get("sec-fetch-mode").and_then(|mode| mode.to_str().ok());
    let wants_stream = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream"));
    match mode {
        Some("navigate") => person,
        None if !wants_stream => person,
        _ => SignedOutVisit::Module,
    }
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find_map(|(given, value)| (given == name).then_some(value))
}

/// The cookie that carries a session for as long as it lives.
pub(crate) fn set(cookies: CookiePolicy, secret: &str, seconds: u64) -> Option<HeaderValue> {
    let text = format!("{}={secret}; Max-Age={seconds}; {}", cookies.session_name(), cookies.attributes());
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Takes the cookie away.
pub(crate) fn clear(cookies: CookiePolicy) -> Option<HeaderValue> {
    let text = format!("{}=; Max-Age=0; {}", cookies.session_name(), cookies.attributes());
    HeaderValue::from_str(&text).ok()
}
