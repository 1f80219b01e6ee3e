//! `/api/v1/agent-accounts`.

use attache_protocol::wire::account::{Account, AccountList, AccountRequest, TrustRequest};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams},
        reply,
    },
};

operations!(create, list, read, update, trust, archive);

/// Create an agent account
#[utoipa::path(post, path = "/api/v1/agent-accounts", tag = "agents", request_body = AccountRequest,
    responses((status = 201, body = Account)))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<AccountRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.create_account(&by, request).await?))
}

/// List agent accounts, by name
#[utoipa::path(get, path = "/api/v1/agent-accounts", tag = "agents", params(PageParams),
    responses((status = 200, body = AccountList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.accounts(&by, page.page()).await?))
}

/// Read an agent account, by id or name
#[utoipa::path(get, path = "/api/v1/agent-accounts/{agent}", tag = "agents", params(("agent" = String, Path)),
    responses((status = 200, body = Account)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.account(&by, &agent).await?))
}

/// Change an agent account; absent members stay unchanged
#[utoipa::path(patch, path = "/api/v1/agent-accounts/{agent}", tag = "agents", params(("agent" = String, Path)),
    request_body = AccountRequest, responses((status = 200, body = Account)))]
async fn update(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
    JsonBody(request): JsonBody<AccountRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.update_account(&by, &agent, request).await?))
}

/// Trust the current card of an outside agent after it changed
#[utoipa::path(post, path = "/api/v1/agent-accounts/{agent}/trust", tag = "agents", params(("agent" = String, Path)),
    request_body = TrustRequest, responses((status = 200, body = Account)))]
async fn trust(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
    JsonBody(request): JsonBody<TrustRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.trust_peer(&by, &agent, request).await?))
}

/// Archive an agent account: its device is disconnected and its live runs are cancelled
#[utoipa::path(delete, path = "/api/v1/agent-accounts/{agent}", tag = "agents", params(("agent" = String, Path)),
    responses((status = 200, body = Account)))]
async fn archive(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.archive_account(&by, &agent).await?))
}
