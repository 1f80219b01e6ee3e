//! Our HTTP API over loopback: a whole hub in this process, driven by callers that speak plain HTTP/1.1.
//!
//! The callers share the machine with the hub, so they do as little as a client can: one connection each, requests
//! written by hand, answers read by length.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use attache_hub::{Hub, Options};
use attache_protocol::{Json, Secret, wire::run::PullResponse};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::{
    Result,
    load::{self, Caller, Measured, OUTPUT_BYTES, QUEUES},
    world::{self, Queue, World},
};

struct Remote {
    stream: TcpStream,
    address: SocketAddr,
    key: Secret<String>,
    queue: Queue,
    create: String,
    output: Json,
    buffer: Vec<u8>,
}

pub(super) async fn drive(folder: &Path, callers: usize, time: Duration) -> Result<Measured> {
    let world = World::make(folder, QUEUES).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let store: Arc<dyn attache_store::Store> = Arc::clone(&world.store) as _;
    let hub = Hub::start(Options::new(folder.join("data"), address), store, world.env.clone()).await?;
    let key = Secret::new(std::fs::read_to_string(folder.join("data/admin.key"))?.trim().to_owned());
    let stop = CancellationToken::new();
    let router = attache_hub::router(hub.clone());
    let server = tokio::spawn(attache_hub::serve(listener, router, hub, stop.clone().cancelled_owned()));

    let mut remotes = Vec::with_capacity(callers);
    for number in 0..callers {
        remotes.push(Remote::connect(address, &key, &world.queues[number % QUEUES]).await?);
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await?;
    Ok(measured)
}

// === impl Remote ===

impl Remote {
    async fn connect(address: SocketAddr, key: &Secret<String>, queue: &Queue) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            address,
            key: key.clone(),
            queue: queue.clone(),
            create: format!(
                r#"{{"agent_id":"{}","task_type":"prompt","input":{}}}"#,
                queue.agent,
                world::input().get()
            ),
            output: world::text_of(OUTPUT_BYTES),
            buffer: Vec::with_capacity(8192),
        })
    }

    /// One request and its answer's body.
    async fn call(&mut self, path: &str, credential: &str, body: &str) -> Result<&[u8]> {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{credential}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.write_all(request.as_bytes()).await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the hub closed the connection".into());
            }
            if let Some((head, length)) = lengths(&self.buffer)?
                && self.buffer.len() >= head + length
            {
                return Ok(&self.buffer[head..head + length]);
            }
        }
    }
}

impl Caller for Remote {
    async fn cycle(&mut self) -> Result<()> {
        let bearer = format!("authorization: Bearer {}", self.key.expose());
        let token = format!("x-runtime-token: {}", self.queue.token.expose());
        let create = std::mem::take(&mut self.create);
        self.call("/api/v1/task-runs", &bearer, &create).await?;
        self.create = create;
        let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull", self.queue.agent);
        let pulled: PullResponse = serde_json::from_slice(self.call(&pull, &token, "{}").await?)?;
        let run = pulled.task_run.ok_or("nothing to pull although a run was created")?;
        let body = format!(r#"{{"epoch":{},"output":{}}}"#, run.epoch, self.output.get());
        self.call(&format!("/api/v1/task-runs/{}/complete", run.task_run_id), &token, &body).await?;
        Ok(())
    }
}

/// The lengths of the head and of the body, once the head is complete. Anything but success is an error.
fn lengths(answer: &[u8]) -> Result<Option<(usize, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?;
    if !head.starts_with("HTTP/1.1 20") {
        return Err(format!("the hub answered: {}", String::from_utf8_lossy(answer)).into());
    }
    let length = head
        .lines()
        .find_map(|line| line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length")))
        .ok_or("an answer without a content-length")?
        .1;
    Ok(Some((end + 4, length.trim().parse()?)))
}
