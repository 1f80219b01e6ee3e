//! A complete hub in this process, on SQLite, with agents that answer immediately.

use std::{
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use attache_hub::{
    Hub, InProcessAgent, Options,
    in_process::{AgentFailure, AgentOutput, InProcessRun},
};
use attache_protocol::env::Env;
use attache_store::{Store, sql::SqlStore};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use crate::{
    BenchResult,
    http_connection::HttpConnection,
    load::{self, INPUT_BYTES, LoadCaller, LoadMeasurement},
};

pub(super) const PATH: &str = "/a2a/bench-0";
/// Connections share this many agents.
const AGENTS: usize = 8;
/// How many streams are timed, one after another.
const STREAMS: usize = 200;

struct EchoAgent;

struct HubA2aCaller {
    http: HttpConnection,
    headers: String,
    path: String,
    number: u64,
    connection: usize,
}

pub(super) async fn drive(
    folder: &Path,
    connections: usize,
    time: Duration,
) -> BenchResult<(LoadMeasurement, LoadMeasurement)> {
    let store = Arc::new(SqlStore::open(&folder.join("hub.db"))?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let hub = Hub::start(Options::new(folder.join("data"), address), store as Arc<dyn Store>, Env::system()).await?;
    let key = std::fs::read_to_string(folder.join("data/admin.key"))?.trim().to_owned();
    let owner = hub.authenticate_key(&key).await?;
    let mut hosted = Vec::with_capacity(AGENTS);
    for number in 0..AGENTS {
        hosted.push(hub.host(&owner, &format!("bench-{number}"), EchoAgent).await?);
    }
    let stop = CancellationToken::new();
    let router = attache_hub::router(hub.clone()).merge(attache_a2a::router(hub.clone()));
    let server = tokio::spawn(attache_hub::serve(listener, router, hub, stop.clone().cancelled_owned()));
    let headers = format!("authorization: Bearer {key}\r\na2a-version: 1.0");
    let mut remotes = Vec::with_capacity(connections);
    for connection in 0..connections {
        let (http, headers) = (HttpConnection::connect(address).await?, headers.clone());
        remotes.push(HubA2aCaller { http, headers, path: path(connection), number: 0, connection });
    }
    let sent = load::drive(remotes, time).await?;
    let first_event = streams(address, &headers).await?;
    for agent in hosted {
        agent.stop().await;
    }
    stop.cancel();
    server.await?;
    Ok((sent, first_event))
}

fn path(connection: usize) -> String {
    format!("/a2a/bench-{}", connection % AGENTS)
}

/// A request with a message of typical size.
pub(super) fn message(method: &str, id: &str) -> String {
    let text = "x".repeat(INPUT_BYTES);
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"message":{{"messageId":"{id}","role":"ROLE_USER","parts":[{{"text":"{text}"}}]}}}}}}"#
    )
}

/// The time to the first event, on an otherwise idle hub.
async fn streams(address: SocketAddr, headers: &str) -> BenchResult<LoadMeasurement> {
    let mut took = Vec::with_capacity(STREAMS);
    let began = Instant::now();
    for number in 0..STREAMS {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let body = message("SendStreamingMessage", &format!("stream-{number}"));
        let request = format!(
            "POST {PATH} HTTP/1.1\r\nhost: {address}\r\n{headers}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let from = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let mut seen = Vec::new();
        while !seen.windows(5).any(|window| window == b"data:") {
            if stream.read_buf(&mut seen).await? == 0 {
                return Err(format!("no event arrived: {}", String::from_utf8_lossy(&seen)).into());
            }
        }
        took.push(from.elapsed());
    }
    took.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "a count of streams is far below 2^52")]
    let runs_per_second = STREAMS as f64 / began.elapsed().as_secs_f64();
    Ok(LoadMeasurement { runs_per_second, p50: load::quantile(&took, 50), p99: load::quantile(&took, 99) })
}

impl InProcessAgent for EchoAgent {
    async fn work(&self, _: InProcessRun) -> std::result::Result<AgentOutput, AgentFailure> {
        Ok(AgentOutput::text("done"))
    }

    fn concurrency(&self) -> usize {
        64
    }
}

// === impl HubA2aCaller ===

impl LoadCaller for HubA2aCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        self.number += 1;
        let body = message("SendMessage", &format!("{}-{}", self.connection, self.number));
        let answer = self.http.post(&self.path, &self.headers, &body).await?;
        let text = std::str::from_utf8(answer)?;
        match text.contains("TASK_STATE_COMPLETED") {
            true => Ok(()),
            false => Err(format!("unexpected answer to a message: {text}").into()),
        }
    }
}
