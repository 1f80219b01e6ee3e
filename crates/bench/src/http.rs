//! Our HTTP API over loopback: a complete hub in this process, driven by callers with one connection each.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use attache_hub::{Hub, Options};
use attache_protocol::{Json, Secret, wire::run::PullResponse};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    BenchResult,
    http_connection::HttpConnection,
    load::{self, LoadCaller, LoadMeasurement, OUTPUT_BYTES, QUEUES},
    world::{self, BenchAgent, BenchWorld},
};

struct HttpRunCaller {
    connection: HttpConnection,
    key: Secret<String>,
    queue: BenchAgent,
    create: String,
    output: Json,
}

pub(super) async fn drive(folder: &Path, callers: usize, time: Duration) -> BenchResult<LoadMeasurement> {
    let world = BenchWorld::make(folder, QUEUES).await?;
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
        remotes.push(HttpRunCaller::connect(address, &key, &world.queues[number % QUEUES]).await?);
    }
    let measured = load::drive(remotes, time).await?;
    stop.cancel();
    server.await?;
    Ok(measured)
}

// === impl HttpRunCaller ===

impl HttpRunCaller {
    async fn connect(address: SocketAddr, key: &Secret<String>, queue: &BenchAgent) -> BenchResult<Self> {
        Ok(Self {
            connection: HttpConnection::connect(address).await?,
            key: key.clone(),
            queue: queue.clone(),
            create: format!(
                r#"{{"agent_id":"{}","task_type":"prompt","input":{}}}"#,
                queue.agent,
                world::input().get()
            ),
            output: world::text_of(OUTPUT_BYTES),
        })
    }
}

impl LoadCaller for HttpRunCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        let bearer = format!("authorization: Bearer {}", self.key.expose());
        let token = format!("x-runtime-token: {}", self.queue.token.expose());
        self.connection.post("/api/v1/task-runs", &bearer, &self.create).await?;
        let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull", self.queue.agent);
        let pulled: PullResponse = serde_json::from_slice(self.connection.post(&pull, &token, "{}").await?)?;
        let run = pulled.task_run.ok_or("no run to pull although one was created")?;
        let body = format!(r#"{{"epoch":{},"output":{}}}"#, run.epoch, self.output.get());
        self.connection.post(&format!("/api/v1/task-runs/{}/complete", run.task_run_id), &token, &body).await?;
        Ok(())
    }
}
