//! `/api/v1/api-keys`.

use attache_protocol::wire::key::{CreateKeyRequest, CreatedKey, Key, KeyList};
use axum::{extract::State, http::StatusCode};

use super::{Answer, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{Caller, Input, Params, Segment, id},
        reply,
    },
};

/// Make an API key; this answer is the only one that shows it
#[utoipa::path(post, path = "/api/v1/api-keys", tag = "keys", request_body = CreateKeyRequest,
    responses((status = 201, body = CreatedKey)))]
pub(super) async fn create(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Input(request): Input<CreateKeyRequest>,
) -> Answer {
    Ok(reply::json(StatusCode::CREATED, &hub.create_key(&by, request).await?))
}

/// List API keys, newest first
#[utoipa::path(get, path = "/api/v1/api-keys", tag = "keys", params(PageParams),
    responses((status = 200, body = KeyList)))]
pub(super) async fn list(State(hub): State<Handle>, Caller(by): Caller, Params(page): Params<PageParams>) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.keys(&by, page.page()).await?))
}

/// Revoke an API key
#[utoipa::path(delete, path = "/api/v1/api-keys/{key}", tag = "keys", params(("key" = String, Path)),
    responses((status = 200, body = Key)))]
pub(super) async fn revoke(State(hub): State<Handle>, Caller(by): Caller, Segment(key): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.revoke_key(&by, id(&key, "key")?).await?))
}
