//! `/api/v1/users`.

use attache_protocol::wire::user::{CreateUserRequest, UpdateUserRequest, User, UserList};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams},
        reply,
    },
};

operations!(create, list, read, update, remove);

/// Add a user
#[utoipa::path(post, path = "/api/v1/users", tag = "users", request_body = CreateUserRequest,
    responses((status = 201, body = User)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CreateUserRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_user(&by, request).await?))
}

/// List users by name; callers who can't see others get only themselves
#[utoipa::path(get, path = "/api/v1/users", tag = "users", params(PageParams),
    responses((status = 200, body = UserList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.users(&by, page.page()).await?))
}

/// Read a user by id or name; `me` is the caller's own user
#[utoipa::path(get, path = "/api/v1/users/{user}", tag = "users", params(("user" = String, Path)),
    responses((status = 200, body = User)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(user): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.user(&by, &user).await?))
}

/// Change a user; absent members stay unchanged, and a new password ends the user's sessions
#[utoipa::path(patch, path = "/api/v1/users/{user}", tag = "users", params(("user" = String, Path)),
    request_body = UpdateUserRequest, responses((status = 200, body = User)))]
async fn update(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(user): PathSegment,
    JsonBody(request): JsonBody<UpdateUserRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.update_user(&by, &user, request).await?))
}

/// Remove a user: their keys, tokens and sessions end immediately; their agents and runs stay
#[utoipa::path(delete, path = "/api/v1/users/{user}", tag = "users", params(("user" = String, Path)),
    responses((status = 200, body = User)))]
async fn remove(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(user): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.remove_user(&by, &user).await?))
}
