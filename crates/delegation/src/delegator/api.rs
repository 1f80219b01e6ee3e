//! The daemon's HTTP API on its Unix socket. Every connection belongs to the user who owns the daemon.

use std::time::Duration;

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{
        AcceptRequest, ApplyRequest, DaemonHealth, DelegateRequest, DelegationDiff, DelegationList, DiscardRequest,
        RevertRequest,
    },
};
use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{DelegatorRefusal, service::DelegatorService};

/// How long to wait, and for a change after which revision or round.
#[derive(Debug, Default, Deserialize)]
struct WaitQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait_ms: u64,
}

/// One changed path, or all of them.
#[derive(Debug, Default, Deserialize)]
struct ReviewQuery {
    path: Option<String>,
}

const MAX_WAIT: Duration = Duration::from_secs(60);
const MAX_BODY: usize = 4 << 20;

type DaemonApiResult = Result<Response, DelegatorRefusal>;

pub(super) fn router(service: DelegatorService) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/delegations", get(list).post(delegate))
        .route("/v1/delegations/{id}", get(show))
        .route("/v1/delegations/{id}/cancel", post(cancel))
        .route("/v1/delegations/{id}/diff", get(diff))
        .route("/v1/delegations/{id}/revert", post(revert))
        .route("/v1/delegations/{id}/review", get(review))
        .route("/v1/delegations/{id}/accept", post(accept))
        .route("/v1/delegations/{id}/apply", post(apply))
        .route("/v1/delegations/{id}/discard", post(discard))
        .route("/v1/sessions/{id}", get(session))
        .route("/v1/sessions/{id}/cancel", post(cancel_session))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(service)
}

async fn health(State(service): State<DelegatorService>) -> Response {
    json(&DaemonHealth {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        ssh: Some(service.ssh().to_string()),
        live: service.live() as u64,
    })
}

async fn delegate(State(service): State<DelegatorService>, body: Bytes) -> DaemonApiResult {
    let request: DelegateRequest = read(&body)?;
    let delegation = service.delegate(request).await?;
    Ok((StatusCode::CREATED, json(&delegation)).into_response())
}

async fn list(State(service): State<DelegatorService>) -> Response {
    json(&DelegationList { delegations: service.list() })
}

async fn show(
    State(service): State<DelegatorService>,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> DaemonApiResult {
    let id = delegation(&id)?;
    let wait = query.limit();
    let mut shown = if wait.is_zero() { service.get(id)? } else { service.wait(id, query.after, wait).await? };
    if shown.status.has_ended() {
        shown.accepted = service.accepted(id).await?;
    }
    Ok(json(&shown))
}

async fn cancel(State(service): State<DelegatorService>, Path(id): Path<String>) -> DaemonApiResult {
    Ok(json(&service.cancel(delegation(&id)?).await?))
}

async fn diff(State(service): State<DelegatorService>, Path(id): Path<String>) -> DaemonApiResult {
    let id = delegation(&id)?;
    Ok(json(&DelegationDiff { text: service.diff(id).await?, accepted: service.accepted(id).await? }))
}

async fn revert(State(service): State<DelegatorService>, Path(id): Path<String>, body: Bytes) -> DaemonApiResult {
    let request: RevertRequest = if body.is_empty() { RevertRequest::default() } else { read(&body)? };
    Ok(json(&service.revert(delegation(&id)?, request).await?))
}

async fn review(
    State(service): State<DelegatorService>,
    Path(id): Path<String>,
    Query(query): Query<ReviewQuery>,
) -> DaemonApiResult {
    Ok(json(&service.review(delegation(&id)?, query.path).await?))
}

async fn accept(State(service): State<DelegatorService>, Path(id): Path<String>, body: Bytes) -> DaemonApiResult {
    let request: AcceptRequest = read(&body)?;
    Ok(json(&service.accept(delegation(&id)?, request).await?))
}

async fn apply(State(service): State<DelegatorService>, Path(id): Path<String>, body: Bytes) -> DaemonApiResult {
    let request: ApplyRequest = if body.is_empty() { ApplyRequest::default() } else { read(&body)? };
    Ok(json(&service.apply(delegation(&id)?, request).await?))
}

async fn discard(State(service): State<DelegatorService>, Path(id): Path<String>, body: Bytes) -> DaemonApiResult {
    let request: DiscardRequest = if body.is_empty() { DiscardRequest::default() } else { read(&body)? };
    Ok(json(&service.discard(delegation(&id)?, request).await?))
}

async fn session(
    State(service): State<DelegatorService>,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Response {
    json(&service.wait_for_session(&id, query.after, query.limit()).await)
}

async fn cancel_session(State(service): State<DelegatorService>, Path(id): Path<String>) -> Response {
    json(&DelegationList { delegations: service.cancel_session(&id).await })
}

async fn no_route() -> DelegatorRefusal {
    let hint =
        "The daemon and the command may be different versions. Stop the daemon; the next command starts it again.";
    DelegatorRefusal::new(Code::NoSuchPath, "no such path in the daemon's API", hint)
}

fn delegation(text: &str) -> Result<DelegationId, DelegatorRefusal> {
    text.parse().map_err(|_| DelegatorRefusal::not_found(format!("`{}`", text.chars().take(80).collect::<String>())))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, DelegatorRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        DelegatorRefusal::new(Code::InvalidRequest, format!("invalid request: {error}"), "Fix the request body.")
    })
}

fn json<T: Serialize>(value: &T) -> Response {
    let text = serde_json::to_vec(value).expect("our own types serialise to JSON");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

// === impl WaitQuery ===

impl WaitQuery {
    fn limit(&self) -> Duration {
        Duration::from_millis(self.wait_ms).min(MAX_WAIT)
    }
}

// === impl DelegatorRefusal ===

impl IntoResponse for DelegatorRefusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, json(&self.body())).into_response()
    }
}
