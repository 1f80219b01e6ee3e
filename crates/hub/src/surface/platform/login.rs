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

/// Make a link that signs one browser in, once
///
/// As the caller, or as the user that is named. The session ends with the key that made the link, and may do no more.
#[utoipa::path(post, path = "/api/v1/login-links", tag = "keys", request_body = LoginLinkRequest,
    responses((status = 201, body = LoginLink)))]
pub(super) async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<LoginLinkRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.login_link(&by, request).await?))
}
