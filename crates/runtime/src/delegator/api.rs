//! The daemon's HTTP API on its Unix socket. Whoever is connected is the person whose daemon this is.

use std::time::Duration;

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{DaemonHealth, DelegateRequest, DelegationDiff, DelegationList, RevertRequest},
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

/// How long to wait, and for what.
#[derive(Debug, Default, Deserialize)]
struct WaitQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait_ms: u64,
}

const MAX_WAIT: Duration = Duration::from_secs(60);
const MAX_BODY: usize = 4 << 20;

type DaemonApiResult = Result<Response, DelegatorRefusal>;

pub(super) fn router(desk: DelegatorService) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/delegations", get(list).post(delegate))
        .route("/v1/delegations/{id}", get(show))
        .route("/v1/delegations/{id}/cancel", post(cancel))
        .route("/v1/delegations/{id}/diff", get(diff))
        .route("/v1/delegations/{id}/revert", post(revert))
        .route("/v1/sessions/{id}", get(session))
        .route("/v1/sessions/{id}/cancel", post(cancel_session))
        .fallback(no_route)
        .method_not_allowed_fallback(no_route)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(desk)
}

async fn health(State(desk): State<DelegatorService>) -> Response {
    json(&DaemonHealth {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        ssh: Some(desk.ssh().to_string()),
        live: desk.live() as u64,
    })
}

async fn delegate(State(desk): State<DelegatorService>, body: Bytes) -> DaemonApiResult {
    let request: DelegateRequest = read(&body)?;
    let delegation = desk.delegate(request).await?;
    Ok((StatusCode::CREATED, json(&delegation)).into_response())
}

async fn list(State(desk): State<DelegatorService>) -> Response {
    json(&DelegationList { delegations: desk.list() })
}

async fn show(
    State(desk): State<DelegatorService>,
    Path(id): Path<String>,
    Query(waiting): Query<WaitQuery>,
) -> DaemonApiResult {
    let id = delegation(&id)?;
    let wait = waiting.limit();
    let shown = if wait.is_zero() { desk.get(id)? } else { desk.wait(id, waiting.after, wait).await? };
    Ok(json(&shown))
}

async fn cancel(State(desk): State<DelegatorService>, Path(id): Path<String>) -> DaemonApiResult {
    Ok(json(&desk.cancel(delegation(&id)?).await?))
}

async fn diff(State(desk): State<DelegatorService>, Path(id): Path<String>) -> DaemonApiResult {
    let text = desk.diff(delegation(&id)?).await?;
    Ok(json(&DelegationDiff { text }))
}

async fn revert(State(desk): State<DelegatorService>, Path(id): Path<String>, body: Bytes) -> DaemonApiResult {
    let request: RevertRequest = if body.is_empty() { RevertRequest::default() } else { read(&body)? };
    Ok(json(&desk.revert(delegation(&id)?, request).await?))
}

async fn session(
    State(desk): State<DelegatorService>,
    Path(id): Path<String>,
    Query(waiting): Query<WaitQuery>,
) -> Response {
    json(&desk.wait_for_session(&id, waiting.after, waiting.limit()).await)
}

async fn cancel_session(State(desk): State<DelegatorService>, Path(id): Path<String>) -> Response {
    json(&DelegationList { delegations: desk.cancel_session(&id).await })
}

async fn no_route() -> DelegatorRefusal {
    let hint = "The daemon and the command that speaks to it may be of different versions: stop the daemon; it is started anew.";
    DelegatorRefusal::new(Code::NoSuchPath, "the daemon has nothing at this path", hint)
}

fn delegation(text: &str) -> Result<DelegationId, DelegatorRefusal> {
    text.parse().map_err(|_| DelegatorRefusal::not_found(format!("`{}`", text.chars().take(80).collect::<String>())))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, DelegatorRefusal> {
    serde_json::from_slice(body).map_err(|error| {
        DelegatorRefusal::new(Code::InvalidRequest, format!("the request cannot be understood: {error}"), "Correct it.")
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
