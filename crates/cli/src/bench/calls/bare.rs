//! A server of the same library that answers the two requests of a call at once: what HTTP alone costs here.

use std::time::Duration;

use axum::{
    Json, Router,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::hub::{self, CALL};
use crate::bench::{
    Result,
    line::Line,
    load::{self, Caller, Measured},
};

struct Remote {
    line: Line,
    body: String,
}

pub(super) async fn drive(callers: usize, time: Duration) -> Result<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let router = Router::new().route(CALL, post(call)).route("/api/a2a/result/{call}", get(result));
    let stopped = stop.clone().cancelled_owned();
    let server = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    let mut remotes = Vec::with_capacity(callers);
    for _ in 0..callers {
        remotes.push(Remote { line: Line::connect(address).await?, body: hub::body("bare") });
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await??;
    Ok(measured)
}

async fn call(Json(request): Json<Value>) -> Json<Value> {
    let watch = request.get("agent_type").and_then(Value::as_str).unwrap_or_default();
    Json(json!({ "call_id": "a2a-0", "status": "started", "watch_url": watch }))
}

async fn result() -> Json<Value> {
    let answer = "x".repeat(load::OUTPUT_BYTES);
    Json(json!({ "status": "completed", "result": { "summary": answer, "details": null }, "stats": {} }))
}

// === impl Remote ===

impl Caller for Remote {
    async fn cycle(&mut self) -> Result<()> {
        self.line.post(CALL, "accept: */*", &self.body).await?;
        self.line.get("/api/a2a/result/a2a-0", "accept: */*").await?;
        Ok(())
    }
}
