//! `/api/v1/login-links`.

use attache_protocol::wire::{session::LoginLinkRequest, system::LoginLink};
use axum::{extract::State, http::StatusCode};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody},
        reply,
    },
};

operations!(create);

/// Create a one-time login link for one browser
///
/// Signs in as the caller or as the named user. The session has at most the rights of the key that created the link,
/// and ends with it.
#[utoipa::path(post, path = "/api/v1/login-links", tag = "keys", request_body = LoginLinkRequest,
    responses((status = 201, body = LoginLink)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<LoginLinkRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.login_link(&by, request).await?))
}
