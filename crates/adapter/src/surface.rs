//! The HTTP surface: `GET /health`, `GET /sessions`, `POST /run-task`, and for a running task its events, cancel and answers.

use std::{convert::Infallible, sync::Arc, time::Duration};

use attache_protocol::{
    Code, RunId, json,
    secret::mask,
    wire::{
        adapter::{AdapterHealth, AdapterInputAnswer, AdapterPermissionDecision, TaskReply},
        host_session::AdapterSessions,
    },
};
use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{ConnectInfo, Path, Request, State},
    http::{HeaderMap, header},
    middleware::{self, Next},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;

use crate::{
    error::AdapterRefusal,
    event_log,
    execution::{Execution, StopReason},
    guard::{BearerCheck, unauthenticated},
    listener::AdapterConnection,
    question::AnswerReceipt,
    service::AdapterService,
};

const MAX_BODY: usize = 8 * 1024 * 1024;

/// How long a request's body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Keep-alive interval for the event stream of a quiet run.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

type SharedService = State<Arc<AdapterService>>;

pub(crate) fn router(service: Arc<AdapterService>) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/sessions", get(sessions))
        .route("/run-task", post(run_task))
        .route("/run-task/{task_run_id}/events", get(events))
        .route("/run-task/{task_run_id}/cancel", post(cancel))
        .route("/run-task/{task_run_id}/permission/{id}", post(permission))
        .route("/run-task/{task_run_id}/input", post(input))
        .fallback(no_such_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(service.clone(), guard))
        .with_state(service)
}

async fn guard(
    State(service): SharedService,
    ConnectInfo(connection): ConnectInfo<AdapterConnection>,
    request: Request,
    next: Next,
) -> Result<Response, AdapterRefusal> {
    let (guard, headers) = (service.guard(), request.headers());
    guard.check_host(request.uri(), headers)?;
    guard.check_origin(headers)?;
    match guard.bearer(headers)? {
        BearerCheck::Right => connection.trust(),
        // `/health` itself decides how much to disclose.
        BearerCheck::Absent if request.uri().path() == "/health" => {}
        BearerCheck::Absent => return Err(unauthenticated("this call needs the adapter's secret")),
    }
    Ok(next.run(request).await)
}

async fn health(State(service): SharedService, headers: HeaderMap) -> Result<Response, AdapterRefusal> {
    match service.guard().bearer(&headers)? {
        BearerCheck::Absent => Ok(([(header::CONTENT_TYPE, "application/json")], r#"{"ok":true}"#).into_response()),
        BearerCheck::Right => {
            let mut runs = service.running().into_iter();
            let (running, also_running) = (runs.next(), runs.collect());
            let enforces = service.enforces().iter().map(|limit| limit.as_str().to_owned()).collect();
            let health = AdapterHealth {
                ok: true,
                host: Some(service.host()),
                asks: service.asks(),
                plans: service.plans(),
                takes_input: service.accepts_unsolicited(),
                worktrees: service.makes_worktrees(),
                running,
                also_running,
                concurrency: Some(service.concurrency()).filter(|places| places.get() > 1),
                enforces,
                walls: service.walls(),
            };
            Ok(Json(health).into_response())
        }
    }
}

/// What the agent keeps for the working folder.
async fn sessions(State(service): SharedService) -> Json<AdapterSessions> {
    Json(AdapterSessions { sessions: service.sessions().await })
}

async fn run_task(State(service): SharedService, request: Request) -> Result<Response, AdapterRefusal> {
    let (headers, task) = body(request, "a task").await?;
    let execution = service.run(task)?;
    if is_media_type(&headers, &header::ACCEPT, "text/event-stream") {
        return Ok(stream(execution, last_event_id(&headers)));
    }
    Ok(Json(execution.outcome().await).into_response())
}

/// Streams the events of the current or last run, from the first one or after the reader's last. Starts nothing.
async fn events(
    State(service): SharedService,
    Path(run): Path<String>,
    headers: HeaderMap,
) -> Result<Response, AdapterRefusal> {
    Ok(stream(find(&service, &run)?, last_event_id(&headers)))
}

/// Answers a question of the current run. Only the first answer counts; repeating it is accepted and changes nothing.
async fn permission(
    State(service): SharedService,
    Path((run, id)): Path<(String, String)>,
    request: Request,
) -> Result<Response, AdapterRefusal> {
    let (_, given) = body::<AdapterPermissionDecision>(request, "an answer to a permission").await?;
    taken(find(&service, &run)?.questions().decide(&id, given))
}

async fn input(
    State(service): SharedService,
    Path(run): Path<String>,
    request: Request,
) -> Result<Response, AdapterRefusal> {
    let (_, given) = body::<AdapterInputAnswer>(request, "input").await?;
    let execution = find(&service, &run)?;
    let questions = execution.questions();
    if given.id.is_none() && !questions.is_open() && !service.accepts_unsolicited() {
        return Err(AdapterRefusal::new(
            Code::NotFound,
            "the agent doesn't accept input while it works, and has no open question",
            "Wait until the run has ended, then send the next task in the same conversation.",
        ));
    }
    taken(questions.answer_input(given))
}

fn taken(taken: AnswerReceipt) -> Result<Response, AdapterRefusal> {
    match taken {
        AnswerReceipt::Accepted => Ok(([(header::CONTENT_TYPE, "application/json")], "{}").into_response()),
        AnswerReceipt::Unknown => Err(AdapterRefusal::new(
            Code::NotFound,
            "the run never asked this question",
            "Use the `id` of the `permission` or `input_required` event.",
        )),
        AnswerReceipt::Full => Err(AdapterRefusal::new(
            Code::Busy,
            "the run hasn't read its earlier input yet",
            "Wait until it asks for input.",
        )),
    }
}

/// Reads a JSON body of one of our types.
async fn body<T: DeserializeOwned>(request: Request, what: &str) -> Result<(HeaderMap, T), AdapterRefusal> {
    let (parts, body) = request.into_parts();
    if !is_media_type(&parts.headers, &header::CONTENT_TYPE, "application/json") {
        return Err(AdapterRefusal::new(
            Code::UnsupportedType,
            format!("{what} must be sent as JSON"),
            "Send the header content-type: application/json.",
        ));
    }
    let body = tokio::time::timeout(BODY_TIMEOUT, read(body)).await.unwrap_or_else(|_| {
        let message = format!("the request body didn't arrive within {} seconds", BODY_TIMEOUT.as_secs());
        Err(AdapterRefusal::new(Code::InvalidRequest, message, "Send the complete body without pauses."))
    })?;
    Ok((parts.headers, parse(&body, what)?))
}

/// Responds with the outcome once the run has been stopped. Repeated calls get the same answer.
async fn cancel(State(service): SharedService, Path(id): Path<String>) -> Result<Json<TaskReply>, AdapterRefusal> {
    let execution = find(&service, &id)?;
    execution.stop(StopReason::Cancelled);
    Ok(Json(execution.outcome().await))
}

fn find(service: &AdapterService, id: &str) -> Result<Arc<Execution>, AdapterRefusal> {
    id.parse::<RunId>().ok().and_then(|id| service.find(id)).ok_or_else(|| {
        AdapterRefusal::new(
            Code::NotFound,
            format!("this adapter doesn't have the run `{}`", mask(&id.chars().take(80).collect::<String>())),
            "Use the current run, which `GET /health` shows, or the one that ended last.",
        )
    })
}

async fn no_such_path() -> AdapterRefusal {
    AdapterRefusal::new(
        Code::NoSuchPath,
        "no such path on an adapter",
        "Available: GET /health, GET /sessions, POST /run-task and, below /run-task/{task_run_id}, events, cancel, permission/{id} and input.",
    )
}

async fn method_not_allowed() -> AdapterRefusal {
    AdapterRefusal::new(
        Code::MethodNotAllowed,
        "this path doesn't support that method",
        "Use GET for /health, /sessions and /run-task/{task_run_id}/events, and POST for everything else.",
    )
}

/// Reads the body within the limit. If it is too large, a little more is read, so that the client sees the response
/// instead of a broken connection.
async fn read(body: Body) -> Result<Bytes, AdapterRefusal> {
    let mut stream = body.into_data_stream();
    let (mut bytes, mut total) = (Vec::new(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|_| {
            AdapterRefusal::new(Code::InvalidRequest, "the request body ended early", "Send the complete body.")
        })?;
        total += piece.len();
        if total <= MAX_BODY {
            bytes.extend_from_slice(&piece);
        } else if total > 4 * MAX_BODY {
            break;
        }
    }
    if total > MAX_BODY {
        return Err(AdapterRefusal::new(
            Code::TooLarge,
            format!("a task can have at most {MAX_BODY} bytes"),
            "Put large data into an artifact or a file.",
        ));
    }
    Ok(bytes.into())
}

fn parse<T: DeserializeOwned>(body: &[u8], wanted: &str) -> Result<T, AdapterRefusal> {
    if json::depth(body) > json::MAX_DEPTH {
        let message = format!("the JSON nests deeper than {} levels", json::MAX_DEPTH);
        return Err(AdapterRefusal::new(Code::TooDeep, message, "Send flatter JSON, or the data as a string."));
    }
    serde_json::from_slice(body).map_err(|error| {
        let (code, what) = match error.is_data() {
            true => (Code::InvalidRequest, format!("the body isn't {wanted}")),
            false => (Code::InvalidJson, "the body isn't JSON".to_owned()),
        };
        AdapterRefusal::new(
            code,
            format!("{what}: {}", mask(&error.to_string())),
            "See docs/adapter.md for the format of every body.",
        )
    })
}

fn stream(execution: Arc<Execution>, seq: u64) -> Response {
    let events = execution.events(seq).map(|event| Ok::<_, Infallible>(sse(&event)));
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response()
}

fn sse(event: &event_log::RecordedEvent) -> Event {
    Event::default().id(event.seq.to_string()).event(event.name).data(event.data.get())
}

/// Whether a header's list of media types contains this one.
fn is_media_type(headers: &HeaderMap, name: &header::HeaderName, wanted: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let media_type = item.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case(wanted)
    })
}

/// Where a disconnected reader resumes. 0, the start, by default.
fn last_event_id(headers: &HeaderMap) -> u64 {
    let value = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}
