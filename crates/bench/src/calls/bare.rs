//! A bare server built with the same HTTP library that answers the two requests of a call immediately: the cost of HTTP
//! alone.

use std::time::Duration;

use axum::{
    Json, Router,
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::hub::{self, CALL};
use crate::{
    BenchResult,
    http_connection::HttpConnection,
    load::{self, LoadCaller, LoadMeasurement},
};

struct BareCallCaller {
    connection: HttpConnection,
    body: String,
}

#[derive(Deserialize)]
struct BareCallRequest {
    agent_type: String,
}

#[derive(Serialize)]
struct BareCallStarted {
    call_id: &'static str,
    status: &'static str,
    watch_url: String,
}

#[derive(Serialize)]
struct BareCallResult {
    status: &'static str,
    summary: String,
}

pub(super) async fn drive(callers: usize, time: Duration) -> BenchResult<LoadMeasurement> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let router = Router::new().route(CALL, post(call)).route("/api/a2a/result/{call}", get(result));
    let stopped = stop.clone().cancelled_owned();
    let server = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    let mut remotes = Vec::with_capacity(callers);
    for _ in 0..callers {
        remotes.push(BareCallCaller { connection: HttpConnection::connect(address).await?, body: hub::body("bare") });
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await??;
    Ok(measured)
}

async fn call(Json(request): Json<BareCallRequest>) -> Json<BareCallStarted> {
    Json(BareCallStarted { call_id: "a2a-0", status: "started", watch_url: request.agent_type })
}

async fn result() -> Json<BareCallResult> {
    Json(BareCallResult { status: "completed", summary: "x".repeat(load::OUTPUT_BYTES) })
}

// === impl BareCallCaller ===

impl LoadCaller for BareCallCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        self.connection.post(CALL, "accept: */*", &self.body).await?;
        self.connection.get("/api/a2a/result/a2a-0", "accept: */*").await?;
        Ok(())
    }
}
