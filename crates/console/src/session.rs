//! Browser sessions: the session cookie and the CSRF token of forms.

use std::net::{IpAddr, Ipv4Addr};

use attache_hub::{
    Handle, Principal,
    surface::{PeerAddress, note_principal},
};
use attache_protocol::{
    digest::hex,
    secret::{SecretHash, mask},
};
use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts, uri::PathAndQuery},
};

use crate::{
    ConsoleState,
    layout::{Shortcuts, Theme},
    options::CookiePolicy,
    problem::{PageError, UnauthenticatedVisit},
    text::{self, Language, Text},
};

/// How long a login may take.
const PLACE_SECONDS: u64 = 900;
const MAX_PLACE: usize = 1024;
const CSRF: &str = "attache console 2026 form token";

/// A signed-in person, what they asked for, and their language and theme.
#[derive(Debug, Clone)]
pub(crate) struct BrowserSession {
    pub(crate) hub: Handle,
    pub(crate) principal: Principal,
    /// The CSRF token of every form. Derived from the session, so it isn't stored.
    pub(crate) csrf: String,
    pub(crate) t: &'static Text,
    /// The language chosen in this browser, if any.
    pub(crate) language: Option<Language>,
    pub(crate) theme: Theme,
    pub(crate) shortcuts: Shortcuts,
    /// The address of the page.
    pub(crate) uri: Uri,
}

// === impl BrowserSession ===

impl BrowserSession {
    /// Whether the form was rendered for this session. Both tokens are hashed, so the comparison leaks nothing.
    pub(crate) fn verify_csrf(&self, token: &str) -> bool {
        SecretHash::of(&self.csrf).matches(token)
    }
}

impl FromRequestParts<ConsoleState> for BrowserSession {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, console: &ConsoleState) -> Result<Self, PageError> {
        let name = console.options.cookies.session_name();
        let Some(secret) = cookie(&parts.headers, name) else {
            return Err(signed_out(parts, console.options.cookies, UnauthenticatedVisit::First));
        };
        match console.hub.authenticate_session(secret).await {
            Ok(principal) => {
                note_principal(&parts.extensions, &principal);
                Ok(Self {
                    hub: console.hub.clone(),
                    principal,
                    csrf: hex(&blake3::derive_key(CSRF, secret.as_bytes())),
                    t: text::for_request(&parts.headers),
                    language: Language::chosen(&parts.headers),
                    theme: Theme::of(&parts.headers),
                    shortcuts: Shortcuts::of(&parts.headers),
                    uri: parts.uri.clone(),
                })
            }
            Err(error) if error.code.http_status() >= 500 => Err(PageError::Hub(error)),
            // Rate-limits guessing of session cookies.
            Err(_) if let Err(error) = console.hub.refuse_credential(address(parts)) => Err(PageError::Hub(error)),
            Err(_) => Err(signed_out(parts, console.options.cookies, UnauthenticatedVisit::Over)),
        }
    }
}

/// The browser's address. A caller in this process has none.
pub(crate) fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<PeerAddress>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(address)| address.ip())
}

/// Our modules get a 401 status; people get the login page.
fn visit(headers: &HeaderMap, person: UnauthenticatedVisit) -> UnauthenticatedVisit {
    let mode = headers.get("sec-fetch-mode").and_then(|mode| mode.to_str().ok());
    let wants_stream = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream"));
    match mode {
        Some("navigate") => person,
        None if !wants_stream => person,
        _ => UnauthenticatedVisit::Module,
    }
}

/// Remembers the page that a person asked for, for after the login.
fn signed_out(parts: &Parts, cookies: CookiePolicy, person: UnauthenticatedVisit) -> PageError {
    let visit = visit(&parts.headers, person);
    let asked = parts.uri.path_and_query().map(PathAndQuery::as_str).filter(|asked| is_place(asked));
    let place =
        asked.filter(|_| parts.method == Method::GET && visit != UnauthenticatedVisit::Module).and_then(|asked| {
            let text = format!("{}={asked}; Max-Age={PLACE_SECONDS}; {}", cookies.place_name(), cookies.attributes());
            HeaderValue::from_str(&text).ok()
        });
    PageError::SignedOut(visit, place)
}

/// The page to show after the login.
pub(crate) fn place(headers: &HeaderMap, cookies: CookiePolicy) -> String {
    let place = cookie(headers, cookies.place_name()).filter(|place| is_place(place));
    place.unwrap_or("/runs").to_owned()
}

/// A cookie that forgets that page.
pub(crate) fn forget_place(cookies: CookiePolicy) -> Option<HeaderValue> {
    let text = format!("{}=; Max-Age=0; {}", cookies.place_name(), cookies.attributes());
    HeaderValue::from_str(&text).ok()
}

/// A path of the console, and nothing that a browser takes for another site or a cookie for its end. Nothing secret
/// either: people paste keys into the wrong field.
fn is_place(path: &str) -> bool {
    let is_page = !path.starts_with("/login") && path != "/";
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
    is_page && is_own_path(path) && path.len() <= MAX_PLACE && mask(path) == path && mask(&decoded) == decoded
}

/// A path of this site that can stand in a header.
pub(crate) fn is_own_path(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'"' | b'\\');
    path.starts_with('/') && !path.starts_with("//") && path.bytes().all(is_plain)
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

/// The session cookie, valid for the lifetime of the session.
pub(crate) fn set(cookies: CookiePolicy, secret: &str, seconds: u64) -> Option<HeaderValue> {
    let text = format!("{}={secret}; Max-Age={seconds}; {}", cookies.session_name(), cookies.attributes());
    let mut value = HeaderValue::from_str(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A cookie that removes the session cookie.
pub(crate) fn clear(cookies: CookiePolicy) -> Option<HeaderValue> {
    let text = format!("{}=; Max-Age=0; {}", cookies.session_name(), cookies.attributes());
    HeaderValue::from_str(&text).ok()
}
