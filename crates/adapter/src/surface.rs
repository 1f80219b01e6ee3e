//! The HTTP surface: `GET /health`, `POST /run-task` and `POST /run-task/{task_run_id}/cancel`.

use std::{convert::Infallible, sync::Arc, time::Duration};

use attache_protocol::{
    Code, RunId, json,
    secret::mask,
    wire::adapter::{Health, RunTask, TaskReply},
};
use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::StreamExt as _;

use crate::{
    error::Refused,
    execution::{Execution, Reason},
    guard::{Bearer, unauthenticated},
    record,
    service::Service,
};

const BODY_LIMIT: usize = 8 * 1024 * 1024;

/// How long a request's body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A quiet run still shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

type Shared = State<Arc<Service>>;

pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/run-task", post(run_task))
        .route("/run-task/{task_run_id}/cancel", post(cancel))
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(service.clone(), guard))
        .with_state(service)
}

async fn guard(State(service): Shared, request: Request, next: Next) -> Result<Response, Refused> {
    let (guard, headers) = (service.guard(), request.headers());
    guard.check_host(request.uri(), headers)?;
    guard.check_origin(headers)?;
    // `/health` decides itself how much it tells.
    if guard.bearer(headers)? == Bearer::Absent && request.uri().path() != "/health" {
        return Err(unauthenticated("this call wants the adapter's secret"));
    }
    Ok(next.run(request).await)
}

async fn health(State(service): Shared, headers: HeaderMap) -> Result<Response, Refused> {
    match service.guard().bearer(&headers)? {
        Bearer::Absent => Ok(([(header::CONTENT_TYPE, "application/json")], r#"{"ok":true}"#).into_response()),
        Bearer::Right => {
            let health = Health { ok: true, host: Some(service.host()), running: service.running() };
            Ok(Json(health).into_response())
        }
    }
}

async fn run_task(State(service): Shared, request: Request) -> Result<Response, Refused> {
    let (parts, body) = request.into_parts();
    if !is_media_type(&parts.headers, &header::CONTENT_TYPE, "application/json") {
        return Err(Refused::new(
            Code::UnsupportedType,
            "a task is sent as JSON",
            "Send the header content-type: application/json.",
        ));
    }
    let body = tokio::time::timeout(BODY_TIME, read(body)).await.unwrap_or_else(|_| {
        let message = format!("the request's body did not arrive within {} seconds", BODY_TIME.as_secs());
        Err(Refused::new(Code::InvalidRequest, message, "Send the whole body at once."))
    })?;
    let execution = service.run(parse(&body)?)?;
    if is_media_type(&parts.headers, &header::ACCEPT, "text/event-stream") {
        return Ok(stream(execution, last_event_id(&parts.headers)));
    }
    Ok(Json(execution.outcome().await).into_response())
}

/// Answers when the run is dead, with its outcome. Repeating it gets the same answer.
async fn cancel(State(service): Shared, Path(id): Path<String>) -> Result<Json<TaskReply>, Refused> {
    let execution = id.parse::<RunId>().ok().and_then(|id| service.find(id)).ok_or_else(|| {
        Refused::new(
            Code::NotFound,
            format!("the run `{}` is not here", mask(&id.chars().take(80).collect::<String>())),
            "Only the run that executes, or ended last, can be cancelled; `GET /health` names the former.",
        )
    })?;
    execution.stop(Reason::Cancelled);
    Ok(Json(execution.outcome().await))
}

async fn no_such_path() -> Refused {
    Refused::new(
        Code::NoSuchPath,
        "an adapter has no such path",
        "It has GET /health, POST /run-task and POST /run-task/{task_run_id}/cancel.",
    )
}

async fn method_not_allowed() -> Refused {
    Refused::new(
        Code::MethodNotAllowed,
        "this path takes another method",
        "Use GET /health, POST /run-task or POST /run-task/{task_run_id}/cancel.",
    )
}

/// Reads the body within the limit. One that is too large is read a little further, so that the client sees the
/// answer instead of a broken connection.
async fn read(body: Body) -> Result<Bytes, Refused> {
    let mut stream = body.into_data_stream();
    let (mut bytes, mut total) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|_| {
            Refused::new(Code::InvalidRequest, "the request's body ended early", "Send the whole body.")
        })?;
        total += piece.len();
        if total <= BODY_LIMIT {
            bytes.extend_from_slice(&piece);
        } else if total > 4 * BODY_LIMIT {
            break;
        }
    }
    if total > BODY_LIMIT {
        return Err(Refused::new(
            Code::TooLarge,
            format!("a task may have {BODY_LIMIT} bytes"),
            "Put large data into an artifact or a file.",
        ));
    }
    Ok(bytes.into())
}

fn parse(body: &[u8]) -> Result<RunTask, Refused> {
    if json::depth(body) > json::MAX_DEPTH {
        let message = format!("the JSON nests deeper than {} levels", json::MAX_DEPTH);
        return Err(Refused::new(Code::TooDeep, message, "Send flatter JSON, or the data as a string."));
    }
    serde_json::from_slice(body).map_err(|error| {
        let (code, what) = match error.is_data() {
            true => (Code::InvalidRequest, "the body is not a task"),
            false => (Code::InvalidJson, "the body is not JSON"),
        };
        Refused::new(code, format!("{what}: {}", mask(&error.to_string())), "docs/adapter.md shows a task in full.")
    })
}

fn stream(execution: Arc<Execution>, seq: u64) -> Response {
    let events = execution.events(seq).map(|event| Ok::<_, Infallible>(sse(&event)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn sse(event: &record::Event) -> Event {
    Event::default().id(event.seq.to_string()).event(event.name).data(event.data.get())
}

/// Whether a header's list of media types holds this one.
fn is_media_type(headers: &HeaderMap, name: &header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let media_type = item.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case(wanted)
    })
}

/// Where a reader that was cut off goes on; 0, the start, unless it says so.
fn last_event_id(headers: &HeaderMap) -> u64 {
    let value = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
