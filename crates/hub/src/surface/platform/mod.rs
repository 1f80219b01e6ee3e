//! The platform's REST surface.

use axum::Router;

use crate::Handle;

/// Every path under `/api/v1`, and the operations paths.
pub fn router(hub: Handle) -> Router {
    Router::new().with_state(hub)
}

/// The OpenAPI document of [`router`], as JSON.
pub fn openapi() -> String {
    String::new()
}
