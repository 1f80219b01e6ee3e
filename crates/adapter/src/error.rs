//! The answers that are errors: `{"error":{"code","message","hint"}}` with the status of the one table.

use attache_protocol::error::{Code, ErrorBody, ErrorDetail};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// A request that is answered with an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdapterRefusal {
    code: Code,
    message: String,
    hint: &'static str,
}

// === impl AdapterRefusal ===

impl AdapterRefusal {
    /// The table's hints speak of a hub; an adapter's errors say what to do here.
    pub(crate) fn new(code: Code, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }
}

impl IntoResponse for AdapterRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let detail =
            ErrorDetail { code: self.code.as_str().to_owned(), message: self.message, hint: self.hint.to_owned() };
        let mut response = (status, Json(ErrorBody { error: detail })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
