//! `/api/v1/permission-requests` and `/permission-grants`, for people and for workers.

use std::time::Duration;

use attache_protocol::{
    RunId,
    rules::permission::PermissionState,
    wire::{
        permission::{
            AlreadyDecided, CreatePermissionRequest, DecisionRequest, GrantList, PermissionAnswer, PermissionGrant,
            PermissionList, PermissionRequest,
        },
        run::RunConflict,
    },
};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{HandlerResult, PageParams, work::LongPollQuery};
use crate::{
    Handle,
    control::{DecisionOrigin, PageRequest, PermissionQuery},
    surface::{
        extract::{AuthenticatedCaller, CallerAddress, JsonBody, PathSegment, PathSegments, QueryParams, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    state: Option<PermissionState>,
    task_run_id: Option<RunId>,
    /// Only requests of this agent, by id or name.
    agent_id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

operations!(ask, answer, list, read, decide, grants, revoke_grant);

/// Ask for permission for a risky step; the run waits for a decision
///
/// A standing grant answers immediately. The same request again returns the existing one.
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/permission-requests", tag = "work",
    params(("run" = String, Path)), request_body = CreatePermissionRequest,
    responses((status = 201, body = PermissionAnswer), (status = 409, body = RunConflict)))]
async fn ask(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<CreatePermissionRequest>,
) -> HandlerResult {
    let asked = hub.request_permission(&by, id(&run, "run")?, request, None).await?;
    Ok(reply::json(StatusCode::CREATED, &PermissionAnswer::from(&asked)))
}

/// Wait for the decision on a permission request
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/permission-requests/{permission}", tag = "work",
    params(("run" = String, Path), ("permission" = String, Path), LongPollQuery),
    responses((status = 200, body = PermissionAnswer)))]
async fn answer(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegments(run, permission): PathSegments,
    QueryParams(query): QueryParams<LongPollQuery>,
) -> HandlerResult {
    const WHAT: &str = "permission request";
    let (run, permission) = (id(&run, WHAT)?, id(&permission, WHAT)?);
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.permission_answer(&by, run, permission, wait).await?))
}

/// List permission requests, newest first
#[utoipa::path(get, path = "/api/v1/permission-requests", tag = "permissions", params(Query),
    responses((status = 200, body = PermissionList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let query = PermissionQuery { state: query.state, run: query.task_run_id, agent: query.agent_id };
    Ok(reply::json(StatusCode::OK, &hub.permissions(&by, query, page).await?))
}

/// Read a permission request
#[utoipa::path(get, path = "/api/v1/permission-requests/{permission}", tag = "permissions",
    params(("permission" = String, Path)), responses((status = 200, body = PermissionRequest)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(permission): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.permission(&by, id(&permission, "permission request")?).await?))
}

/// Decide a permission request; the first decision is final
///
/// Repeating your own decision returns it again. Anyone else gets an error that says who decided.
#[utoipa::path(post, path = "/api/v1/permission-requests/{permission}/decision", tag = "permissions",
    params(("permission" = String, Path)), request_body = DecisionRequest,
    responses((status = 200, body = PermissionRequest), (status = 409, body = AlreadyDecided)))]
async fn decide(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    CallerAddress(from): CallerAddress,
    PathSegment(permission): PathSegment,
    JsonBody(decision): JsonBody<DecisionRequest>,
) -> HandlerResult {
    let place = DecisionOrigin { via: "rest", from: Some(from.to_string()) };
    let decided = hub.decide(&by, id(&permission, "permission request")?, decision, place).await?;
    Ok(reply::json(StatusCode::OK, &decided))
}

/// List standing grants and denials, newest first
#[utoipa::path(get, path = "/api/v1/permission-grants", tag = "permissions", params(PageParams),
    responses((status = 200, body = GrantList)))]
async fn grants(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.grants(&by, page.page()).await?))
}

/// Revoke a grant: it stops answering requests
#[utoipa::path(delete, path = "/api/v1/permission-grants/{grant}", tag = "permissions",
    params(("grant" = String, Path)), responses((status = 200, body = PermissionGrant)))]
async fn revoke_grant(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(grant): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.revoke_grant(&by, id(&grant, "grant")?).await?))
}
