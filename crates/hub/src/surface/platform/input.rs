//! `/api/v1/task-runs/{id}/input` and `/input-requests`.

use std::time::Duration;

use attache_protocol::wire::{
    input_request::{CreateInputRequest, GiveInputRequest, GiveInputResponse, InputAnswer},
    run::RunConflict,
};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, work::LongPollQuery};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, PathSegments, QueryParams, id},
        reply,
    },
};

operations!(give, ask, answer);

/// Send input to a run: text or parts
///
/// Answers the run's oldest open question. Without an open question, it is delivered as unsolicited input. The same
/// idempotency key returns the same input.
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/input", tag = "runs", params(("run" = String, Path)),
    request_body = GiveInputRequest,
    responses((status = 200, body = GiveInputResponse), (status = 409, body = RunConflict)))]
async fn give(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<GiveInputRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.give_input(&by, id(&run, "run")?, request).await?))
}

/// Ask the caller for input; the run waits for the answer
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/input-requests", tag = "work", params(("run" = String, Path)),
    request_body = CreateInputRequest, responses((status = 201, body = InputAnswer), (status = 409, body = RunConflict)))]
async fn ask(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    JsonBody(request): JsonBody<CreateInputRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::CREATED, &hub.request_input(&by, id(&run, "run")?, request).await?))
}

/// Wait for the answer to an input request
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/input-requests/{ask}", tag = "work",
    params(("run" = String, Path), ("ask" = String, Path), LongPollQuery), responses((status = 200, body = InputAnswer)))]
async fn answer(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegments(run, ask): PathSegments,
    QueryParams(query): QueryParams<LongPollQuery>,
) -> HandlerResult {
    const WHAT: &str = "input request";
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.input_answer(&by, id(&run, WHAT)?, id(&ask, WHAT)?, wait).await?))
}
