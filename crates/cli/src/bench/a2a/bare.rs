//! A server of the same library that answers every message at once with a task: what HTTP and JSON alone cost here.

use std::time::Duration;

use attache_protocol::{
    Json,
    wire::a2a::{Request, SendMessage},
};
use axum::{Json as Body, Router, routing::post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::hub::{PATH, message};
use crate::bench::{
    Result,
    line::Line,
    load::{self, Caller, Measured},
};

struct Remote {
    line: Line,
    body: String,
}

const ANSWER: &str = concat!(
    r#"{"task":{"id":"run_0","contextId":"cnv_0","status":{"state":"TASK_STATE_COMPLETED"},"#,
    r#""artifacts":[{"artifactId":"answer","parts":[{"text":"done"}]}]}}"#
);

pub(super) async fn drive(callers: usize, time: Duration) -> Result<Measured> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let stop = CancellationToken::new();
    let router = Router::new().route(PATH, post(answer));
    let stopped = stop.clone().cancelled_owned();
    let server = tokio::spawn(async move { axum::serve(listener, router).with_graceful_shutdown(stopped).await });
    let mut remotes = Vec::with_capacity(callers);
    for number in 0..callers {
        remotes.push(Remote { line: Line::connect(address).await?, body: message("SendMessage", &number.to_string()) });
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await??;
    Ok(measured)
}

/// Reads the message, as every server must.
async fn answer(Body(request): Body<Request>) -> String {
    let read = request.params.and_then(|params| params.parse::<SendMessage>().ok());
    let id = request.id.filter(|_| read.is_some()).unwrap_or_else(|| Json::of("unreadable"));
    format!(r#"{{"jsonrpc":"2.0","id":{},"result":{ANSWER}}}"#, id.get())
}

// === impl Remote ===

impl Caller for Remote {
    async fn cycle(&mut self) -> Result<()> {
        self.line.post(PATH, "accept: */*", &self.body).await.map(drop)
    }
}
