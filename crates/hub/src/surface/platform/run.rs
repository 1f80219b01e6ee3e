//! `/api/v1/task-runs`, for callers.

use attache_protocol::{
    ConversationId, RunId, Timestamp,
    rules::run::RunStatus,
    wire::run::{CancelRequest, CreateRunRequest, Run, RunList},
};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::IntoResponse as _,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Handle,
    control::{CallHeaders, CreatedRun, PageRequest, RunQuery},
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, header_text, id, parent_run},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    status: Option<RunStatus>,
    /// Only runs of this agent, by id or name.
    agent_id: Option<String>,
    conversation_id: Option<ConversationId>,
    parent_task_run_id: Option<RunId>,
    /// Only runs that wait for a person: for an approval or for input.
    waiting: Option<bool>,
    /// Only runs created at this time or later.
    since: Option<Timestamp>,
    /// Only runs created by this person or agent, by name or id.
    caller: Option<String>,
    /// Only runs whose task, id or agent's name contains this text, ignoring case.
    text: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

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
#[utoipa::path(get, path = "/api/v1/task-runs", tag = "runs", params(Query),
    responses((status = 200, body = RunList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let query = RunQuery {
        status: query.status,
        agent: query.agent_id,
        conversation: query.conversation_id,
        parent: query.parent_task_run_id,
        waiting: query.waiting.unwrap_or_default(),
        since: query.since,
        caller: query.caller,
        text: query.text,
        page: PageRequest { limit: query.limit, cursor: query.cursor },
    };
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
