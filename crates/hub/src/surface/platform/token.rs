//! `/api/v1/tokens` and `/.well-known/jwks.json`.

use attache_protocol::wire::token::{IssuedToken, KeySet, TokenRequest};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, Response, StatusCode, header},
};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody},
        reply,
    },
};

operations!(create, keys);

/// Create a short-lived token (JWT) with the rights of the caller's key, or fewer
#[utoipa::path(post, path = "/api/v1/tokens", tag = "keys", request_body = TokenRequest,
    responses((status = 201, body = IssuedToken)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<TokenRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_token(&by, request).await?))
}

/// Read the public keys that verify the hub's tokens and agent cards
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "system", responses((status = 200, body = KeySet)),
    security(()))]
async fn keys(State(hub): State<Handle>) -> Response<Body> {
    let mut response = reply::json(StatusCode::OK, &hub.token_keys());
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}
