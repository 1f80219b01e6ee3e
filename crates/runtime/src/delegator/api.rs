//! The daemon's HTTP API on its Unix socket. Whoever is connected is the person whose daemon this is.

use std::time::Duration;

use attache_protocol::{
    Code, DelegationId,
    wire::delegation::{Delegate, Delegations, Diff, Health, Revert},
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

use super::{Refused, desk::Delegator};

/// How long to wait, and for what.
#[derive(Debug, Default, Deserialize)]
struct Waiting {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait_ms: u64,
}

const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LARGEST: usize = 4 << 20;

type Answer = Result<Response, Refused>;

pub(super) fn router(desk: Delegator) -> Router {
    Router::new()
        .route("/v1/health", get(health))
        .route("/v1/delegations", get(list).post(delegate))
        .route("/v1/delegations/{id}", get(show))
        .route("/v1/delegations/{id}/cancel", post(cancel))
        .route("/v1/delegations/{id}/diff", get(diff))
        .route("/v1/delegations/{id}/revert", post(revert))
        .route("/v1/sessions/{id}", get(session))
        .route("/v1/sessions/{id}/cancel", post(cancel_session))
        .fallback(nothing_here)
        .method_not_allowed_fallback(nothing_here)
        .layer(DefaultBodyLimit::max(LARGEST))
        .with_state(desk)
}

async fn health(State(desk): State<Delegator>) -> Response {
    json(&Health {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        ssh: Some(desk.ssh().to_string()),
        live: desk.live() as u64,
    })
}

async fn delegate(State(desk): State<Delegator>, body: Bytes) -> Answer {
    let request: Delegate = read(&body)?;
    let delegation = desk.delegate(request).await?;
    Ok((StatusCode::CREATED, json(&delegation)).into_response())
}

async fn list(State(desk): State<Delegator>) -> Response {
    json(&Delegations { delegations: desk.list() })
}

async fn show(State(desk): State<Delegator>, Path(id): Path<String>, Query(waiting): Query<Waiting>) -> Answer {
    let id = delegation(&id)?;
    let wait = waiting.limit();
    let shown = if wait.is_zero() { desk.get(id)? } else { desk.wait(id, waiting.after, wait).await? };
    Ok(json(&shown))
}

async fn cancel(State(desk): State<Delegator>, Path(id): Path<String>) -> Answer {
    Ok(json(&desk.cancel(delegation(&id)?).await?))
}

async fn diff(State(desk): State<Delegator>, Path(id): Path<String>) -> Answer {
    let text = desk.diff(delegation(&id)?).await?;
    Ok(json(&Diff { text }))
}

async fn revert(State(desk): State<Delegator>, Path(id): Path<String>, body: Bytes) -> Answer {
    let request: Revert = if body.is_empty() { Revert::default() } else { read(&body)? };
    Ok(json(&desk.revert(delegation(&id)?, request).await?))
}

async fn session(State(desk): State<Delegator>, Path(id): Path<String>, Query(waiting): Query<Waiting>) -> Response {
    json(&desk.wait_for_session(&id, waiting.after, waiting.limit()).await)
}

async fn cancel_session(State(desk): State<Delegator>, Path(id): Path<String>) -> Response {
    json(&Delegations { delegations: desk.cancel_session(&id).await })
}

async fn nothing_here() -> Refused {
    let hint = "The daemon and the command that speaks to it may be of different versions: stop the daemon; it is started anew.";
    Refused::new(Code::NoSuchPath, "the daemon has nothing at this path", hint)
}

fn delegation(text: &str) -> Result<DelegationId, Refused> {
    text.parse().map_err(|_| Refused::not_found(format!("`{}`", text.chars().take(80).collect::<String>())))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| {
        Refused::new(Code::InvalidRequest, format!("the request cannot be understood: {error}"), "Correct it.")
    })
}

fn json<T: Serialize>(value: &T) -> Response {
    let text = serde_json::to_vec(value).expect("our own types serialise to JSON");
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

// === impl Waiting ===

impl Waiting {
    fn limit(&self) -> Duration {
        Duration::from_millis(self.wait_ms).min(LONGEST_WAIT)
    }
}

// === impl Refused ===

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, json(&self.body())).into_response()
    }
}
