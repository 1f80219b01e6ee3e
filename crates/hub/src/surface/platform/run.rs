//! `/api/v1/task-runs`, for callers.

use attache_protocol::wire::run::{CancelRequest, CreateRunRequest, Run, RunList, RunQuery};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse as _,
};

use super::HandlerResult;
use crate::{
    Handle,
    control::{CallHeaders, CreatedRun},
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, header_text, id, parent_run},
        reply,
    },
};

operations!(create, list, read, delete, cancel);

/// Create a run for an agent
///
/// Repeating the idempotency key returns 200 with the existing run.
#[utoipa::path(post, path = "/api/v1/task-runs", tag = "runs", request_body = CreateRunRequest,
    params(("Idempotency-Key" = Option<String>, Header), ("traceparent" = Option<String>, Header),
        ("X-Attache-Parent-Run" = Option<String>, Header)),
    responses((status = 201, body = Run), (status = 200, body = Run, description = "The existing run for this key")))]
async fn create(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    headers: HeaderMap,
    JsonBody(request): JsonBody<CreateRunRequest>,
) -> HandlerResult {
    let headers = CallHeaders {
        idempotency_key: header_text(&headers, "idempotency-key")?,
        traceparent: headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned),
        parent: parent_run(&headers)?,
        ..CallHeaders::default()
    };
    Ok(match hub.create_run(&by, request, headers).await? {
        CreatedRun::New(run) => reply::json(StatusCode::CREATED, &run),
        CreatedRun::Existing(run) => reply::json(StatusCode::OK, &run),
    })
}

/// List runs, newest first
#[utoipa::path(get, path = "/api/v1/task-runs", tag = "runs", params(RunQuery),
    responses((status = 200, body = RunList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<RunQuery>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.runs(&by, query).await?))
}

/// Read a run
#[utoipa::path(get, path = "/api/v1/task-runs/{run}", tag = "runs", params(("run" = String, Path)),
    responses((status = 200, body = Run)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.run(&by, id(&run, "run")?).await?))
}

/// Delete a run that has ended
///
/// Also deletes its result, events, approvals and artifacts. The log still records that it existed and who deleted it.
#[utoipa::path(delete, path = "/api/v1/task-runs/{run}", tag = "runs", params(("run" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
) -> HandlerResult {
    hub.delete_run(&by, id(&run, "run")?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Cancel a run immediately
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/cancel", tag = "runs", params(("run" = String, Path)),
    request_body = CancelRequest, responses((status = 200, body = Run)))]
async fn cancel(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<CancelRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.cancel_run(&by, id(&run, "run")?, request).await?))
}
