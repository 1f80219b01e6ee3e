//! Responses: JSON with a status, and errors.

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
    response::IntoResponse,
};
use serde::Serialize;

use crate::{Error, identity::RateLimitStatus};

/// A JSON response.
pub fn json<T: Serialize + ?Sized>(status: StatusCode, value: &T) -> Response<Body> {
    json_bytes(status, serde_json::to_vec(value).expect("our own types serialise to JSON"))
}

fn json_bytes(status: StatusCode, bytes: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // Some responses contain secrets, and all of them may change.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

// === impl Error ===

impl IntoResponse for Error {
    fn into_response(self) -> Response<Body> {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_bytes(status, self.body());
        match status {
            StatusCode::UNAUTHORIZED => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let wait = self.retry_after.or(self.limited.as_ref().map(|left| left.reset)).unwrap_or(60);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                let wait = self.retry_after.unwrap_or(1);
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
            }
            _ => {}
        }
        if let Some(left) = self.limited {
            show_limit(&mut response, *left);
        }
        response
    }
}

/// The headers of draft-ietf-httpapi-ratelimit-headers: the policy and what is left of it.
pub(crate) fn show_limit(response: &mut Response<Body>, left: RateLimitStatus) {
    let RateLimitStatus { policy, per_minute, remaining, reset } = left;
    let fields = [
        ("ratelimit-policy", format!("\"{policy}\";q={per_minute};w=60")),
        ("ratelimit", format!("\"{policy}\";r={remaining};t={reset}")),
    ];
    for (name, value) in fields {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
}
