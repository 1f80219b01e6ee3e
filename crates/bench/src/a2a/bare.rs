//! A bare server built with the same HTTP library that answers every message immediately with a task: the cost of HTTP
//! and JSON alone.

use std::time::Duration;

use attache_a2a_wire::{RpcRequest, SendMessage};
use attache_protocol::Json;
use axum::{Json as Body, Router, routing::post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::hub::{PATH, message};
use crate::{
    BenchResult,
    http_connection::HttpConnection,
    load::{self, LoadCaller, LoadMeasurement},
};

struct BareA2aCaller {
    connection: HttpConnection,
    body: String,
}

const ANSWER: &str = concat!(
    r#"{"task":{"id":"run_0","contextId":"cnv_0","status":{"state":"TASK_STATE_COMPLETED"},"#,
    r#""artifacts":[{"artifactId":"answer","parts":[{"text":"done"}]}]}}"#
);

pub(super) async fn drive(callers: usize, time: Duration) -> BenchResult<LoadMeasurement> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let router = Router::new().route(PATH, post(answer));
    let stopped = stop.clone().cancelled_owned();
    let server = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    let mut remotes = Vec::with_capacity(callers);
    for number in 0..callers {
        remotes.push(BareA2aCaller {
            connection: HttpConnection::connect(address).await?,
            body: message("SendMessage", &number.to_string()),
        });
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await??;
    Ok(measured)
}

/// Parses the message, as every server must.
async fn answer(Body(request): Body<RpcRequest>) -> String {
    let read = request.params.and_then(|params| params.parse::<SendMessage>().ok());
    let id = request.id.filter(|_| read.is_some()).unwrap_or_else(|| Json::of("unreadable"));
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{ANSWER}}}"#, id.get())
}

// === impl BareA2aCaller ===

impl LoadCaller for BareA2aCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        self.connection.post(PATH, "accept: */*", &self.body).await.map(drop)
    }
}
