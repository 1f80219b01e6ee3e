//! `/api/v1/task-runs/{id}/input` and `/input-requests`.

use std::time::Duration;

use attache_protocol::wire::{
    ask::{AskInput, InputAnswer, InputRequest, InputResponse},
    run::Conflict,
};
use axum::{extract::State, http::StatusCode};

use super::{Answer, work::Wait};
use crate::{
    Handle,
    surface::{
        extract::{Caller, Input, Params, Segment, Segments, id},
        reply,
    },
};

/// Give input to a run: text, or parts
///
/// It answers the oldest open question of the run, or is simply heard. The same idempotency key again is the same input.
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/input", tag = "runs", params(("run" = String, Path)),
    request_body = InputRequest,
    responses((status = 200, body = InputResponse), (status = 409, body = Conflict)))]
pub(super) async fn give(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(run): Segment,
    Input(request): Input<InputRequest>,
) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.give_input(&by, id(&run, "run")?, request).await?))
}

/// Ask the caller for input; the run waits until it comes
#[utoipa::path(post, path = "/api/v1/task-runs/{run}/input-requests", tag = "work", params(("run" = String, Path)),
    request_body = AskInput, responses((status = 201, body = InputAnswer), (status = 409, body = Conflict)))]
pub(super) async fn ask(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(run): Segment,
    Input(request): Input<AskInput>,
) -> Answer {
    Ok(reply::json(StatusCode::CREATED, &hub.ask_input(&by, id(&run, "run")?, request).await?))
}

/// Wait for the answer to an input request
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/input-requests/{ask}", tag = "work",
    params(("run" = String, Path), ("ask" = String, Path), Wait), responses((status = 200, body = InputAnswer)))]
pub(super) async fn answer(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segments(run, ask): Segments,
    Params(query): Params<Wait>,
) -> Answer {
    const WHAT: &str = "input request";
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.input_answer(&by, id(&run, WHAT)?, id(&ask, WHAT)?, wait).await?))
}
