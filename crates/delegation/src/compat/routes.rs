//! The routes of an executor of the reference implementation, below `/awcp`.

use std::{convert::Infallible, sync::Arc, time::Duration};

use attache_protocol::wire::awcp::VERSION;
use axum::{
    Json, Router,
    extract::{Path, Request, State},
    http::{StatusCode, header},
    middleware,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::stream;
use tokio::sync::watch;

use super::{
    assignment::CompatProgress,
    endpoint::{CompatEndpoint, EndpointCounts, EndpointRefusal, snapshot},
    messages::{
        CompatAck, CompatEvent, CompatHeader, CompatInvite, CompatProblem, CompatResult, CompatService, CompatSnapshot,
        CompatStart, CompatStatus, read, written, written_event,
    },
    request_guard::{IncomingMessage, guard, read_message},
};

/// The other side's connections may be closed when they are silent for longer.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

type EndpointResult = Result<Response, EndpointRefusal>;

pub(super) fn router(endpoint: CompatEndpoint) -> Router {
    let routes = Router::new()
        .route("/", post(message))
        .route("/status", get(status))
        .route("/tasks/{id}/events", get(events))
        .route("/tasks/{id}/result", get(result))
        .route("/tasks/{id}/ack", post(acknowledge))
        .route("/cancel/{id}", post(cancel));
    Router::new().nest("/awcp", routes).layer(middleware::from_fn(guard)).with_state(endpoint)
}

async fn message(State(endpoint): State<CompatEndpoint>, request: Request) -> EndpointResult {
    let IncomingMessage { bytes: body, archive: _place } =
        read_message(request, endpoint.archives(), |id| endpoint.check_startable(id)).await?;
    let invalid = |error: String| EndpointRefusal(StatusCode::BAD_REQUEST, format!("invalid message: {error}"));
    let header: CompatHeader = read(&body).map_err(invalid)?;
    if header.version != VERSION {
        return Err(invalid(format!("version `{}` is not supported", header.version)));
    }
    let id = header.delegation_id;
    match &*header.kind {
        "INVITE" => {
            let invite: CompatInvite = read(&body).map_err(invalid)?;
            let answer = match endpoint.invite(&id, &invite).await {
                Ok(accept) => written("ACCEPT", &id, &accept),
                Err(failure) => written("ERROR", &id, &failure),
            };
            Ok(([(header::CONTENT_TYPE, "application/json")], answer).into_response())
        }
        "START" => {
            let start: CompatStart = read(&body).map_err(invalid)?;
            drop(body);
            endpoint.start(&id, start).await?;
            Ok(Json(CompatAck::DONE).into_response())
        }
        "ERROR" => {
            endpoint.cancel(&id).await?;
            Ok(Json(CompatAck::DONE).into_response())
        }
        other => Err(invalid(format!("its type is `{other}`"))),
    }
}

/// Only numbers: this route asks for nothing.
async fn status(State(endpoint): State<CompatEndpoint>) -> Json<CompatService> {
    let EndpointCounts { pending, active, ended } = endpoint.counts();
    Json(CompatService {
        pending_invitations: pending,
        active_delegations: active,
        completed_delegations: ended,
        delegations: [],
    })
}

async fn events(State(endpoint): State<CompatEndpoint>, Path(id): Path<String>) -> EndpointResult {
    let assignment = endpoint.find(&id)?;
    let env = endpoint.env().clone();
    let receiver = assignment.progress.subscribe();
    let next = move |state: Option<(watch::Receiver<CompatProgress>, bool)>| {
        let (assignment, env, id) = (Arc::clone(&assignment), env.clone(), id.clone());
        async move {
            let (mut receiver, is_first) = state?;
            let progress = loop {
                if !is_first || matches!(*receiver.borrow_and_update(), CompatProgress::Pending(_)) {
                    receiver.changed().await.ok()?;
                }
                let progress = receiver.borrow_and_update().clone();
                if !matches!(progress, CompatProgress::Pending(_)) {
                    break progress;
                }
            };
            let has_ended = progress.has_ended();
            let written = |event: CompatEvent| written_event(&id, env.now(), &event);
            let mut texts = Vec::new();
            match progress {
                CompatProgress::Pending(_) => {}
                CompatProgress::Active(message) => {
                    texts.push(written(CompatEvent::Status(CompatStatus { status: "running".to_owned(), message })));
                }
                CompatProgress::Completed(done, _) => {
                    let snapshot_base64 =
                        tokio::task::spawn_blocking(move || snapshot(&assignment)).await.ok().flatten();
                    let event = snapshot_base64.zip(done.recommended_snapshot_id.clone());
                    texts.extend(event.map(|(snapshot_base64, snapshot_id)| {
                        written(CompatEvent::Snapshot(CompatSnapshot {
                            snapshot_id,
                            summary: done.summary.clone(),
                            highlights: done.highlights.clone(),
                            snapshot_base64,
                            recommended: true,
                        }))
                    }));
                    texts.push(written(CompatEvent::Done(done)));
                }
                CompatProgress::Failed(failure, _) => texts.push(written(CompatEvent::Error(failure))),
            }
            let events: Vec<Result<Event, Infallible>> =
                texts.into_iter().map(|text| Ok(Event::default().data(text))).collect();
            Some((stream::iter(events), (!has_ended).then_some((receiver, false))))
        }
    };
    let events = futures_util::StreamExt::flatten(stream::unfold(Some((receiver, true)), next));
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("keepalive")).into_response())
}

async fn result(State(endpoint): State<CompatEndpoint>, Path(id): Path<String>) -> EndpointResult {
    let Ok(assignment) = endpoint.find(&id) else {
        let unknown = CompatResult { status: "not_found".to_owned(), ..CompatResult::default() };
        return Ok((StatusCode::NOT_FOUND, Json(unknown)).into_response());
    };
    let progress = assignment.progress.borrow().clone();
    let of = |status: &str| CompatResult { status: status.to_owned(), ..CompatResult::default() };
    let result = match progress {
        CompatProgress::Pending(_) | CompatProgress::Active(_) => of("running"),
        CompatProgress::Completed(done, at) => CompatResult {
            completed_at: Some(at),
            summary: Some(done.summary),
            highlights: done.highlights,
            snapshot_base64: tokio::task::spawn_blocking(move || snapshot(&assignment)).await.ok().flatten(),
            ..of("completed")
        },
        CompatProgress::Failed(failure, at) => {
            CompatResult { completed_at: Some(at), error: Some(failure), ..of("error") }
        }
    };
    Ok(Json(result).into_response())
}

async fn acknowledge(State(endpoint): State<CompatEndpoint>, Path(id): Path<String>) -> Json<CompatAck> {
    let ended = endpoint.find(&id).ok().filter(|assignment| assignment.has_ended());
    if let Some(assignment) = ended {
        assignment.acknowledged.notify_one();
    }
    Json(CompatAck::DONE)
}

async fn cancel(State(endpoint): State<CompatEndpoint>, Path(id): Path<String>) -> EndpointResult {
    endpoint.cancel(&id).await?;
    Ok(Json(CompatAck::CANCELLED).into_response())
}

impl IntoResponse for EndpointRefusal {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        (status, Json(CompatProblem { error })).into_response()
    }
}
