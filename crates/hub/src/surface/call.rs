//! `/api/a2a/call`, `/watch`, `/stream`, `/result` and `/v1/tasks`: the small API for programs that call agents.

use std::time::Duration;

use attache_protocol::{
    Code,
    wire::call::{CallRequest, CallResult, CallStarted, CallStatus, CallTask, CallTaskRequest},
};
use axum::{
    Extension,
    body::Body,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, Response, StatusCode, Uri, header},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    call_socket,
    extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, accepts, header_text, parent_run},
    reply,
};
use crate::connection_slot::ConnectionSlot;
use crate::{
    Error, Handle, Principal, Result,
    control::{CallHeaders, CreatedRun, call_in_path},
    stream::{CallDetail, respond},
};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ResultQuery {
    /// How long to wait for the result in milliseconds, at most 60000. Default: return immediately.
    wait_ms: Option<u64>,
}

type Upgrade = std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>;

operations!(call, watch, stream, result, create_task, read_task);

/// Call an agent; the work continues after the response
///
/// Repeating the idempotency key returns the same call. See docs/calls.md.
#[utoipa::path(post, path = "/api/a2a/call", tag = "calls", request_body = CallRequest,
    params(("Idempotency-Key" = Option<String>, Header), ("traceparent" = Option<String>, Header),
        ("X-Attache-Parent-Run" = Option<String>, Header)),
    responses((status = 200, body = CallStarted)))]
async fn call(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(request): JsonBody<CallRequest>,
) -> Result<Response<Body>> {
    let call_id = hub.call(&by, request, call_headers(&headers)?).await?;
    let watch_url = format!("{}/api/a2a/watch/{call_id}", socket_origin(&hub, &uri, &headers));
    Ok(reply::json(StatusCode::OK, &CallStarted { call_id, status: CallStatus::Started, watch_url }))
}

/// Watch a call over a WebSocket, or with `Accept: text/event-stream`: everything the agent does, until the call ends
#[utoipa::path(get, path = "/api/a2a/watch/{call}", tag = "calls",
    params(("call" = String, Path), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((String = "text/event-stream"))), (status = 101, description = "A WebSocket")))]
async fn watch(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(call): PathSegment,
    headers: HeaderMap,
    connection_slot: Option<Extension<ConnectionSlot>>,
    upgrade: Upgrade,
) -> Result<Response<Body>> {
    show(hub, by, &call, &headers, connection_slot, upgrade, CallDetail::Everything).await
}

/// The same, but only the agent's messages and the end of the call
#[utoipa::path(get, path = "/api/a2a/stream/{call}", tag = "calls",
    params(("call" = String, Path), ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((String = "text/event-stream"))), (status = 101, description = "A WebSocket")))]
async fn stream(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(call): PathSegment,
    headers: HeaderMap,
    connection_slot: Option<Extension<ConnectionSlot>>,
    upgrade: Upgrade,
) -> Result<Response<Body>> {
    show(hub, by, &call, &headers, connection_slot, upgrade, CallDetail::Messages).await
}

/// Over a WebSocket, or as server-sent events if requested.
async fn show(
    hub: Handle,
    by: Principal,
    call: &str,
    headers: &HeaderMap,
    connection_slot: Option<Extension<ConnectionSlot>>,
    upgrade: Upgrade,
    shown: CallDetail,
) -> Result<Response<Body>> {
    let call = call_in_path(call)?;
    match upgrade {
        Ok(upgrade) => {
            let followed = hub.watch_call(&by, call, shown, None).await?;
            Ok(call_socket::upgrade(
                upgrade,
                hub,
                followed,
                connection_slot.map(|Extension(connection_slot)| connection_slot),
            ))
        }
        Err(_) if accepts(headers, "text/event-stream") => {
            let after = super::platform::last_event_id(headers)?;
            Ok(respond(&hub, hub.watch_call(&by, call, shown, after).await?))
        }
        Err(_) => {
            // A caller who can't see the call gets the same answer as everywhere else.
            hub.call_result(&by, call).await?;
            Err(Error::new(Code::InvalidRequest, "This path needs a WebSocket or server-sent events.").hint(
                "Open a WebSocket, or send `Accept: text/event-stream`. To poll, use GET /api/a2a/result/{call_id}.",
            ))
        }
    }
}

/// Read the result of a call, or its state if there is none in time
#[utoipa::path(get, path = "/api/a2a/result/{call}", tag = "calls", params(("call" = String, Path), ResultQuery),
    responses((status = 200, body = CallResult)))]
async fn result(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(call): PathSegment,
    QueryParams(query): QueryParams<ResultQuery>,
) -> Result<Response<Body>> {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.await_call(&by, call_in_path(&call)?, wait).await?))
}

/// Call an agent in the form of a header and a task
///
/// Repeating the idempotency key returns 200 with the existing task.
#[utoipa::path(post, path = "/api/a2a/v1/tasks", tag = "calls", request_body = CallTaskRequest,
    params(("Idempotency-Key" = Option<String>, Header), ("traceparent" = Option<String>, Header),
        ("X-Attache-Parent-Run" = Option<String>, Header)),
    responses((status = 201, body = CallTask), (status = 200, body = CallTask, description = "The existing task for this key")))]
async fn create_task(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    headers: HeaderMap,
    JsonBody(request): JsonBody<CallTaskRequest>,
) -> Result<Response<Body>> {
    let (status, run) = match hub.call_task(&by, request, call_headers(&headers)?).await? {
        CreatedRun::New(run) => (StatusCode::CREATED, run),
        CreatedRun::Existing(run) => (StatusCode::OK, run),
    };
    Ok(reply::json(status, &CallTask::of(&run, hub.now())))
}

/// Read a task and its result
#[utoipa::path(get, path = "/api/a2a/v1/tasks/{call}", tag = "calls", params(("call" = String, Path)),
    responses((status = 200, body = CallTask)))]
async fn read_task(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(call): PathSegment,
) -> Result<Response<Body>> {
    Ok(reply::json(StatusCode::OK, &hub.called_task(&by, call_in_path(&call)?).await?))
}

fn call_headers(headers: &HeaderMap) -> Result<CallHeaders> {
    Ok(CallHeaders {
        idempotency_key: header_text(headers, "idempotency-key")?,
        traceparent: headers.get("traceparent").and_then(|value| value.to_str().ok()).map(str::to_owned),
        parent: parent_run(headers)?,
        ..CallHeaders::default()
    })
}

/// The hub's `ws://…` or `wss://…` origin: the public URL if set, otherwise the host the caller used, which is one of
/// the hub's own names.
fn socket_origin(hub: &Handle, uri: &Uri, headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let host = host.or_else(|| uri.authority().map(|authority| authority.as_str()));
    let origin = match (&hub.options().public_url, host) {
        (None, Some(host)) => format!("{}://{host}", hub.options().scheme()),
        (Some(_), _) | (None, None) => hub.origin(),
    };
    match origin.strip_prefix("https://") {
        Some(host) => format!("wss://{host}"),
        None => format!("ws://{}", origin.strip_prefix("http://").unwrap_or(&origin)),
    }
}
