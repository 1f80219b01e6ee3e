//! Extractors for handlers: caller, path segments, query and JSON body, each with a clear error.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
    sync::{Arc, OnceLock},
};

use attache_protocol::{
    Code, RunId, json,
    secret::{Kind, mask},
    wire::call::CallId,
};
use axum::{
    body::Body,
    extract::{FromRequest, FromRequestParts, Path, Query},
    http::{HeaderMap, Request, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::{
    Error, Handle, Principal, Result,
    identity::RateLimitStatus,
    surface::{intake, json_scan, note_principal},
    tls::Fingerprint,
};

pub(crate) const BODY_LIMIT: usize = 1 << 20;
pub(crate) const OUTPUT_LIMIT: usize = 4 << 20;
/// How much of a rejected body is read and discarded, so that the sender can read the response.
const MAX_DISCARDED: usize = 16 << 20;

/// The address the request came from, set by [`crate::serve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress(pub SocketAddr);

/// Carries the caller's rate limit from the request to the response.
#[derive(Debug, Clone, Default)]
pub(crate) struct RateLimitSlot(pub(crate) Arc<OnceLock<RateLimitStatus>>);

/// The caller according to a header or the connection's certificate, or why authentication failed. Set by
/// [`crate::serve`] if the request has a credential.
#[derive(Debug, Clone)]
pub(crate) struct RequestIdentity(pub(crate) Result<Principal>);

/// The caller, by `X-Runtime-Token`, `Authorization: Bearer` or client certificate.
#[derive(Debug)]
pub(crate) struct AuthenticatedCaller(pub(crate) Principal);

/// The caller, on routes that also accept requests without a credential.
#[derive(Debug)]
pub(crate) struct MaybeCaller(pub(crate) Option<Principal>);

/// The caller's address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallerAddress(pub(crate) IpAddr);

/// The variable segment of the path.
#[derive(Debug)]
pub(crate) struct PathSegment(pub(crate) String);

/// Two variable segments of the path.
#[derive(Debug)]
pub(crate) struct PathSegments(pub(crate) String, pub(crate) String);

#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

/// A JSON body of at most `LIMIT` bytes. An empty body counts as `{}`.
#[derive(Debug)]
pub(crate) struct JsonBody<T, const LIMIT: usize = BODY_LIMIT>(pub(crate) T);

/// Why a JSON text is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonBodyError {
    /// Not valid JSON.
    NotJson(String),
    TooDeep(String),
    /// Valid JSON of the wrong shape. Names the member if known.
    Wrong {
        member: Option<String>,
        problem: String,
    },
}

/// Reads a complete body, for surfaces outside this crate. The time limit is set by the port.
pub async fn body(body: Body, limit: usize) -> Result<Bytes> {
    read(body, limit).await
}

/// Parses JSON within the hub's depth limit.
pub fn read_json<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, JsonBodyError> {
    let bytes = &*json::replace_lone_surrogates(bytes);
    if json_scan::too_deep(bytes) {
        return Err(JsonBodyError::TooDeep(format!("The JSON nests deeper than {} levels", json_scan::MAX_DEPTH)));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| JsonBodyError::NotJson("it is not UTF-8".to_owned()))?;
    serde_json::from_str(text).map_err(|error| {
        // Check for valid JSON first, before reporting a member.
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text) {
            return JsonBodyError::NotJson(error.to_string());
        }
        let problem = mask(&json::explain(&error)).into_owned();
        let (line, column) = (error.line(), error.column());
        let member = match problem.split('`').nth(1).filter(|_| problem.starts_with("missing field")) {
            Some(name) => json_scan::missing_at(bytes, line, column, name),
            None => json_scan::member_at(bytes, line, column),
        };
        JsonBodyError::Wrong { member, problem }
    })
}

/// The caller, for surfaces outside this crate. `None` without a credential. An invalid credential is rejected even
/// where none is needed.
pub async fn caller(parts: &Parts, hub: &Handle) -> Result<Option<Principal>> {
    // A certificate comes with the connection whether intended or not, so an unknown one counts as none.
    let is_certified = || matches!(parts.extensions.get(), Some(RequestIdentity(Ok(_))));
    if !shows_key(&parts.headers) && !is_certified() {
        return Ok(None);
    }
    admit(parts, hub).await.map(Some)
}

/// In a path, text that is not a valid id names something that does not exist.
pub(crate) fn id<T: FromStr>(text: &str, what: &'static str) -> Result<T> {
    text.parse().map_err(|_| Error::not_found(what))
}

/// A header that must be readable text if present.
pub(crate) fn header_text(headers: &HeaderMap, name: &'static str) -> Result<Option<String>> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| Error::invalid(name, "must be printable ASCII"))?;
    Ok(Some(text.to_owned()))
}

/// `X-Attache-Parent-Run`: the parent run of a call. Also accepts a call id.
pub(crate) fn parent_run(headers: &HeaderMap) -> Result<Option<RunId>> {
    const NAME: &str = "x-attache-parent-run";
    let Some(text) = header_text(headers, NAME)? else { return Ok(None) };
    let call: CallId = text.parse().map_err(|_| Error::invalid(NAME, "must be a run id"))?;
    Ok(Some(call.run()))
}

pub(crate) fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    headers.get_all(header::ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(media_type)))
}

// === impl AuthenticatedCaller ===

impl FromRequestParts<Handle> for AuthenticatedCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, hub: &Handle) -> Result<Self> {
        admit(parts, hub).await.map(Self)
    }
}

async fn admit(parts: &Parts, hub: &Handle) -> Result<Principal> {
    let by = match authenticate(parts, hub).await {
        // Limits how often an address can guess.
        Err(error) if error.code.http_status() == 401 => {
            hub.attempts().failed(address(parts))?;
            return Err(error);
        }
        other => other?,
    };
    if let Some(left) = hub.attempts().admit(&by)?
        && let Some(told) = parts.extensions.get::<RateLimitSlot>()
    {
        let _ = told.0.set(left);
    }
    note_principal(&parts.extensions, &by);
    Ok(by)
}

async fn authenticate(parts: &Parts, hub: &Handle) -> Result<Principal> {
    let shown = match parts.extensions.get::<RequestIdentity>() {
        Some(shown) => Some(shown.clone()),
        // An in-process caller that bypasses the port.
        None => identify(hub, &parts.headers, None).await,
    };
    shown.map_or_else(|| Err(Error::no_credential()), |RequestIdentity(caller)| caller)
}

/// The caller, by header or by the connection's certificate. `None` without either. A header takes precedence over the
/// certificate.
pub(crate) async fn identify(
    hub: &Handle,
    headers: &HeaderMap,
    client: Option<Fingerprint>,
) -> Option<RequestIdentity> {
    if let Some(token) = headers.get("x-runtime-token") {
        return Some(RequestIdentity(hub.authenticate_runtime(token.to_str().unwrap_or_default()).await));
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Some(RequestIdentity(hub.authenticate_certificate(client?).await));
    };
    let bearer = value.to_str().ok().and_then(|text| text.split_once(' '));
    Some(RequestIdentity(match bearer {
        Some((scheme, secret)) if scheme.eq_ignore_ascii_case("bearer") => hub.authenticate_key(secret.trim()).await,
        Some(_) | None => Err(Error::unauthenticated("The Authorization header must be `Bearer ak_…`.")),
    }))
}

/// The person behind a session cookie. Only the console accepts this as a credential.
pub(crate) async fn browser(hub: &Handle, headers: &HeaderMap) -> Option<Result<Principal>> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.split_once('='));
    let (_, secret) = values.find(|(_, value)| value.trim().starts_with(Kind::Session.prefix()))?;
    Some(hub.authenticate_session(secret.trim()).await)
}

fn shows_key(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-runtime-token")
}

/// The request's source address. In-process callers have none.
fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<PeerAddress>();
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(address)| address.ip())
}

impl FromRequestParts<Handle> for MaybeCaller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, hub: &Handle) -> Result<Self> {
        caller(parts, hub).await.map(Self)
    }
}

// === impl CallerAddress ===

impl<S: Sync> FromRequestParts<S> for CallerAddress {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Ok(Self(address(parts)))
    }
}

// === impl PathSegment ===

impl<S: Send + Sync> FromRequestParts<S> for PathSegment {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let segment = Path::<String>::from_request_parts(parts, state).await;
        segment.map(|Path(text)| Self(text)).map_err(|_| bad_path())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for PathSegments {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let segments = Path::<(String, String)>::from_request_parts(parts, state).await;
        segments.map(|Path((one, two))| Self(one, two)).map_err(|_| bad_path())
    }
}

fn bad_path() -> Error {
    Error::new(Code::InvalidRequest, "The path is not valid UTF-8.")
}

// === impl QueryParams ===

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(value)| Self(value)).map_err(|rejection| {
            let text = rejection.body_text();
            let detail = text.split_once(": ").map_or(text.as_str(), |(_, detail)| detail);
            Error::new(Code::InvalidRequest, format!("The query is not valid: {}.", mask(detail)))
        })
    }
}

// === impl JsonBody ===

impl<T: DeserializeOwned, const LIMIT: usize> FromRequest<Handle> for JsonBody<T, LIMIT> {
    type Rejection = Error;

    async fn from_request(request: Request<Body>, _: &Handle) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let bytes = read(body, LIMIT).await?;
        if bytes.is_empty() {
            return parse(b"{}").map(Self);
        }
        check_type(&parts.headers)?;
        parse(&bytes).map(Self)
    }
}

fn check_type(headers: &HeaderMap) -> Result<()> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let essence = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") || essence.to_ascii_lowercase().ends_with("+json") {
        return Ok(());
    }
    Err(Error::new(Code::UnsupportedType, "The body must be JSON."))
}

async fn read(mut body: Body, limit: usize) -> Result<Bytes> {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(intake::broken)?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + more.len() + data.len() > limit {
            discard(body).await;
            return Err(Error::new(Code::TooLarge, format!("The body is larger than {limit} bytes.")));
        }
        // Most bodies arrive in one piece and are not copied.
        if first.is_empty() {
            first = data;
        } else {
            more.extend_from_slice(&data);
        }
    }
    if more.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + more.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&more);
    Ok(whole.freeze())
}

async fn discard(mut body: Body) {
    let mut left = MAX_DISCARDED;
    while let Some(frame) = body.frame().await {
        // The response already says that the body is too large.
        let Ok(frame) = frame.map_err(intake::broken) else { return };
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let bytes = &*json::replace_lone_surrogates(bytes);
    if json_scan::too_deep(bytes) {
        return Err(Error::new(Code::TooDeep, format!("The JSON nests deeper than {} levels.", json_scan::MAX_DEPTH)));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::new(Code::InvalidJson, "The body is not valid JSON: it is not UTF-8."))?;
    // Serde would read an array as the members in order, which is never intended.
    let parsed = match text.trim_ascii_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|error| explain(bytes, &error)),
        false => Err(Error::new(Code::InvalidRequest, "The body must be a JSON object.")),
    };
    // Check for valid JSON first, before reporting a member.
    parsed.map_err(|refusal| match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => refusal,
        Err(error) => Error::new(Code::InvalidJson, format!("The body is not valid JSON: {error}.")),
    })
}

/// What is wrong, and in which member.
fn explain(bytes: &[u8], error: &serde_json::Error) -> Error {
    let text = json::explain(error);
    let what = mask(&text);
    let named = ["missing field", "unknown field", "duplicate field"].iter().any(|start| what.starts_with(start));
    match json_scan::member_at(bytes, error.line(), error.column()).filter(|_| !named) {
        Some(member) => Error::invalid(&mask(&member), &format!("is not valid: {what}")),
        None => Error::new(Code::InvalidRequest, format!("The body is not valid: {what}.")),
    }
}
