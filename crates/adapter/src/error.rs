//! Error responses: `{"error":{"code","message","hint"}}`, with the HTTP status from the shared error table.

use attache_protocol::error::{Code, ErrorBody, ErrorDetail};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// An error response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdapterRefusal {
    code: Code,
    message: String,
    hint: &'static str,
}

// === impl AdapterRefusal ===

impl AdapterRefusal {
    /// Takes its own hint, because the hints in the shared table are about a hub.
    pub(crate) fn new(code: Code, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint }
    }
}

impl IntoResponse for AdapterRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let detail = ErrorDetail {
            code: self.code.as_str().to_owned(),
            message: self.message,
            hint: self.hint.to_owned(),
            remedy: None,
        };
        let mut response = (status, Json(ErrorBody { error: detail })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
