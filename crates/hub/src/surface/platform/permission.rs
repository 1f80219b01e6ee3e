//! `/api/v1/permission-requests` and `/permission-grants` as people see them, and how a worker asks.

use std::time::Duration;

use attache_protocol::{
    RunId,
    rules::permission::State as PermissionState,
    wire::{
        permission::{
            AlreadyDecided, AskPermission, DecisionRequest, GrantList, PermissionAnswer, PermissionGrant,
            PermissionList, PermissionRequest,
        },
        run::Conflict,
    },
};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PageParams, work::Wait};
use crate::{
    Handle,
    control::{PageRequest, PermissionQuery, Place},
    surface::{
        extract::{Caller, From, Input, Params, Segment, Segments, id},
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

/// Ask for a risky step; the run waits until somebody decides
///
/// A standing grant answers at once. Asking the same again gives the same request back.
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/permission-requests", tag = "work",
    params(("run" = String, Path)), request_body = AskPermission,
    responses((status = 201, body = PermissionAnswer), (status = 409, body = Conflict)))]
pub(super) async fn ask(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(run): Segment,
    Input(request): Input<AskPermission>,
) -> Answer {
    let asked = hub.ask_permission(&by, id(&run, "run")?, request, None).await?;
    Ok(reply::json(StatusCode::CREATED, &PermissionAnswer::from(&asked)))
}

/// Wait for the answer to a permission request
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/permission-requests/{permission}", tag = "work",
    params(("run" = String, Path), ("permission" = String, Path), Wait),
    responses((status = 200, body = PermissionAnswer)))]
pub(super) async fn answer(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segments(run, permission): Segments,
    Params(query): Params<Wait>,
) -> Answer {
    const WHAT: &str = "permission request";
    let (run, permission) = (id(&run, WHAT)?, id(&permission, WHAT)?);
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.permission_answer(&by, run, permission, wait).await?))
}

/// List permission requests, newest first
#[utoipa::path(get, path = "/api/v1/permission-requests", tag = "permissions", params(Query),
    responses((status = 200, body = PermissionList)))]
pub(super) async fn list(State(hub): State<Handle>, Caller(by): Caller, Params(query): Params<Query>) -> Answer {
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let query = PermissionQuery { state: query.state, run: query.task_run_id, agent: query.agent_id };
    Ok(reply::json(StatusCode::OK, &hub.permissions(&by, query, page).await?))
}

/// Read a permission request
#[utoipa::path(get, path = "/api/v1/permission-requests/{permission}", tag = "permissions",
    params(("permission" = String, Path)), responses((status = 200, body = PermissionRequest)))]
pub(super) async fn read(State(hub): State<Handle>, Caller(by): Caller, Segment(permission): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.permission(&by, id(&permission, "permission request")?).await?))
}

/// Decide a permission request, once
///
/// The same decider repeating the same decision gets it back; everybody else is told who was first.
#[utoipa::path(post, path = "/api/v1/permission-requests/{permission}/decision", tag = "permissions",
    params(("permission" = String, Path)), request_body = DecisionRequest,
    responses((status = 200, body = PermissionRequest), (status = 409, body = AlreadyDecided)))]
pub(super) async fn decide(
    State(hub): State<Handle>,
    Caller(by): Caller,
    From(from): From,
    Segment(permission): Segment,
    Input(decision): Input<DecisionRequest>,
) -> Answer {
    let place = Place { via: "rest", from: Some(from.to_string()) };
    let decided = hub.decide(&by, id(&permission, "permission request")?, decision, place).await?;
    Ok(reply::json(StatusCode::OK, &decided))
}

/// List standing grants and denials, newest first
#[utoipa::path(get, path = "/api/v1/permission-grants", tag = "permissions", params(PageParams),
    responses((status = 200, body = GrantList)))]
pub(super) async fn grants(State(hub): State<Handle>, Caller(by): Caller, Params(page): Params<PageParams>) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.grants(&by, page.page()).await?))
}

/// Revoke a grant: from now on it answers nothing
#[utoipa::path(delete, path = "/api/v1/permission-grants/{grant}", tag = "permissions",
    params(("grant" = String, Path)), responses((status = 200, body = PermissionGrant)))]
pub(super) async fn revoke_grant(State(hub): State<Handle>, Caller(by): Caller, Segment(grant): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.revoke_grant(&by, id(&grant, "grant")?).await?))
}
