//! `/api/v1/api-keys`.

use attache_protocol::wire::key::{CreateKeyRequest, CreatedKey, Key, KeyList};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, id},
        reply,
    },
};

operations!(create, list, revoke);

/// Create an API key; only this response contains it
#[utoipa::path(post, path = "/api/v1/api-keys", tag = "keys", request_body = CreateKeyRequest,
    responses((status = 201, body = CreatedKey)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CreateKeyRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_key(&by, request).await?))
}

/// List API keys, newest first
#[utoipa::path(get, path = "/api/v1/api-keys", tag = "keys", params(PageParams),
    responses((status = 200, body = KeyList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.keys(&by, page.page()).await?))
}

/// Revoke an API key
#[utoipa::path(delete, path = "/api/v1/api-keys/{key}", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, body = Key)))]
async fn revoke(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(key): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.revoke_key(&by, id(&key, "key")?).await?))
}
