//! Headers and bodies shared by all HTTP bindings.

use attache_protocol::Json;
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};

use crate::{
    agent_request::{A2aVersion, AgentRequest},
    error::Error,
};

const A2A_JSON: &str = "application/a2a+json";
const JSON: &str = "application/json";

/// The caller's own media type, or else plain JSON, which every client understands.
pub(super) fn media_type(headers: &HeaderMap) -> &'static str {
    let says = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if says(header::ACCEPT).contains(A2A_JSON) || says(header::CONTENT_TYPE).starts_with(A2A_JSON) {
        A2A_JSON
    } else {
        JSON
    }
}

pub(super) fn json(status: StatusCode, media_type: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Adds the version and extensions that were used.
pub(super) fn mark(asked: &AgentRequest, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.insert("a2a-version", HeaderValue::from_static(asked.version.as_str()));
    let Ok(activated) = HeaderValue::from_str(&asked.activated.join(", ")) else { return };
    if asked.activated.is_empty() {
        return;
    }
    if asked.version == A2aVersion::V03 {
        headers.insert("x-a2a-extensions", activated.clone());
    }
    headers.insert("a2a-extensions", activated);
}

/// The HTTP headers of an error response.
pub(super) fn refuse(error: &Error, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    if error.grpc_status() == "UNAUTHENTICATED" {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
}

/// The HTTP+JSON error body. 0.3 leaves its form open, and its kits expect the JSON-RPC code and message at the top.
pub(super) fn rest_error(error: &Error, version: A2aVersion, media_type: &'static str) -> Response<Body> {
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = text(&error.rest());
    let body = match version {
        A2aVersion::V10 => body,
        A2aVersion::V03 => {
            let message = Json::of(&error.message);
            let members = body.trim_start_matches('{');
            format!(r#"{{"code":{},"message":{},{members}"#, error.rpc_code(), message.get())
        }
    };
    let mut response = json(status, media_type, body);
    refuse(error, &mut response);
    response
}

pub(super) fn text(json: &Json) -> String {
    json.get().to_owned()
}
