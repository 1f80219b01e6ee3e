//! `/api/v1/task-runs/{run}/worktree`: what becomes of a run's worktree, for the agent's owner and for its device.

use std::time::Duration;

use attache_protocol::wire::worktree::{
    DecideWorktreeRequest, DecidedWorktree, PendingWorktreeDecisionList, SettleWorktreeRequest,
};
use axum::{extract::State, http::StatusCode, response::IntoResponse as _};

use super::{HandlerResult, work::LongPollQuery};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, id},
        reply,
    },
};

operations!(read, decide, pending, settle);

/// Read what was decided about a run's worktree, or wait for the device's answer
///
/// Only for the agent's owner in person.
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/worktree", tag = "runs",
    params(("run" = String, Path), LongPollQuery), responses((status = 200, body = DecidedWorktree)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    QueryParams(query): QueryParams<LongPollQuery>,
) -> HandlerResult {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.worktree_decision(&by, id(&run, "run")?, wait).await?))
}

/// Have the agent's device commit, apply or discard a run's worktree
///
/// Only for the agent's owner in person, and only while the device is online. The answer comes with `GET`.
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/worktree", tag = "runs", params(("run" = String, Path)),
    request_body = DecideWorktreeRequest, responses((status = 202, body = DecidedWorktree)))]
async fn decide(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<DecideWorktreeRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::ACCEPTED, &hub.decide_worktree(&by, id(&run, "run")?, request).await?))
}

/// List the decisions about worktrees that the device is to carry out
#[utoipa::path(get, path = "/api/v1/agent-runtimes/runtime/worktree-decisions", tag = "work",
    responses((status = 200, body = PendingWorktreeDecisionList)))]
async fn pending(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.pending_worktree_decisions(&by).await?))
}

/// Report what the device made of a decision about a worktree; safe to repeat
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/worktree/outcome", tag = "work", params(("run" = String, Path)),
    request_body = SettleWorktreeRequest, responses((status = 204)))]
async fn settle(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<SettleWorktreeRequest>,
) -> HandlerResult {
    hub.settle_worktree(&by, id(&run, "run")?, request).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
