//! The API for runtimes: heartbeat, pull, progress, complete, fail, release.

use std::time::Duration;

use attache_protocol::wire::{
    run::{
        CompleteRequest, FailRequest, FinishResponse, ProgressRequest, ProgressResponse, PullResponse, ReleaseRequest,
        Run, RunConflict, SandboxLimit,
    },
    runtime::{HeartbeatRequest, HeartbeatResponse},
};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{HandlerResult, pull_body};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, OUTPUT_LIMIT, PathSegment, QueryParams, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct LongPollQuery {
    /// How long to wait for an answer in milliseconds, at most 60000. Default: return immediately.
    pub(super) wait_ms: Option<u64>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PullQuery {
    /// How long to wait for a run in milliseconds, at most 60000. Default: return immediately.
    pub(super) wait_ms: Option<u64>,
    /// The run limits that the device enforces, comma-separated: `cwd_only`, `no_network`, `no_exec`. A run that
    /// requires any other limit ends as `refused`.
    pub(super) enforces: Option<String>,
}

operations!(heartbeat, pull, progress, complete, fail, release);

/// Report that the device is alive and which runs it executes
#[utoipa::path(post, path = "/api/v1/agent-runtimes/runtime/heartbeat", tag = "work",
    request_body = HeartbeatRequest, responses((status = 200, body = HeartbeatResponse)))]
async fn heartbeat(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<HeartbeatRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.heartbeat(&by, request).await?))
}

/// Claim the next run for the runtime's agent
#[utoipa::path(post, path = "/api/v1/agent-accounts/{agent}/task-runs/pull", tag = "work",
    params(("agent" = String, Path), PullQuery), responses((status = 200, body = PullResponse)))]
async fn pull(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
    QueryParams(query): QueryParams<PullQuery>,
) -> HandlerResult {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    let enforces = SandboxLimit::known(query.enforces.as_deref().unwrap_or_default().split(','));
    Ok(pull_body::respond(hub.pull_enforcing(&by, &agent, wait, enforces).await?))
}

/// Report progress, which also renews the claim
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/progress", tag = "work", params(("run" = String, Path)),
    request_body = ProgressRequest,
    responses((status = 200, body = ProgressResponse), (status = 409, body = RunConflict)))]
async fn progress(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<ProgressRequest, OUTPUT_LIMIT>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.progress(&by, id(&run, "run")?, request).await?))
}

/// Complete a run with its output; safe to repeat
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/complete", tag = "work", params(("run" = String, Path)),
    request_body = CompleteRequest,
    responses((status = 200, body = FinishResponse), (status = 409, body = RunConflict)))]
async fn complete(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<CompleteRequest, OUTPUT_LIMIT>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.complete(&by, id(&run, "run")?, request).await?))
}

/// Fail a run with an error
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/fail", tag = "work", params(("run" = String, Path)),
    request_body = FailRequest,
    responses((status = 200, body = FinishResponse), (status = 409, body = RunConflict)))]
async fn fail(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<FailRequest, OUTPUT_LIMIT>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.fail(&by, id(&run, "run")?, request).await?))
}

/// Release a run before work has started; no attempt is used
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/release", tag = "work", params(("run" = String, Path)),
    request_body = ReleaseRequest, responses((status = 200, body = Run), (status = 409, body = RunConflict)))]
async fn release(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<ReleaseRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.release(&by, id(&run, "run")?, request).await?))
}
