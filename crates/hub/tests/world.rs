//! A hub in this process, and clients that use plain HTTP.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::{Handle, Hub, NodeOptions, Options, identity::key_ring::open_cluster_key, router, serve};
use attache_protocol::{env::Env, secret::Kind, wire::key::Role};
use attache_store::{
    Store, WriteContext,
    memory::MemoryStore,
    record::{NewKey, user::NewUser},
    sql::SqlStore,
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::counting::Counting;

/// Far longer than anything here takes, even on a slow and busy machine. Only a failing test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The store the hub uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Model,
    Sqlite,
    /// Several hubs on one in-memory store. A request meets any of them, and half of the hints between them are lost.
    Nodes,
}

/// Runs each test once on the in-memory store and once on SQLite.
macro_rules! on_both {
    ($($name:ident)*) => {
        mod on_the_model {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::Engine::Model).await;
            })*
        }

        mod on_sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::Engine::Sqlite).await;
            })*
        }
    };
}
pub(crate) use on_both;

/// The same, and once on several hubs, except for those after `alone:`.
macro_rules! on_all {
    ($($name:ident)*) => {
        crate::world::on_all! { $($name)* ; alone: }
    };
    ($($name:ident)* ; alone: $($alone:ident)*) => {
        crate::world::on_both! { $($name)* $($alone)* }

        mod on_three_nodes {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::world::Engine::Nodes).await;
            })*
        }
    };
}
pub(crate) use on_all;

pub struct World {
    pub hub: Handle,
    pub store: Arc<dyn Store>,
    pub env: Env,
    pub owner: TestCaller,
    pub address: SocketAddr,
    pub data: TempDir,
    /// The first one is `hub`.
    pub nodes: Vec<TestNode>,
    served: JoinHandle<()>,
}

/// One of the hubs.
pub struct TestNode {
    pub hub: Handle,
    pub store: Arc<dyn Store>,
    pub address: SocketAddr,
    serves: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
}

/// A caller of the hub with fixed headers.
#[derive(Clone)]
pub struct TestCaller {
    address: SocketAddr,
    headers: Vec<(&'static str, String)>,
}

/// A device paired with an agent.
pub struct TestDevice {
    pub client: TestCaller,
    pub agent: String,
    pub runtime: String,
    pub token: String,
}

#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// An open stream of server-sent events.
pub struct SseEvents {
    response: Response<Incoming>,
    text: String,
}

/// One message of a stream.
#[derive(Debug, PartialEq)]
pub struct SseEvent {
    pub id: i64,
    pub event: String,
    pub data: Value,
}

const BACKLOG: u32 = 1024;

/// How many hubs a world on the model has, if the environment doesn't say.
const NODES: usize = 3;

/// The environment can have every world on the model run with several hubs.
fn usual_nodes() -> usize {
    std::env::var("ATTACHE_TEST_NODES").ok().map_or(1, |nodes| nodes.parse().expect("a number of nodes"))
}

/// Stores of as many nodes, one state. This part of the hints between them is lost, in percent.
pub fn node_stores(nodes: usize, lost: u8) -> Vec<Arc<dyn Store>> {
    let shared = MemoryStore::new();
    if nodes == 1 { vec![Arc::new(shared)] } else { (0..nodes).map(|_| node_store(&shared, lost)).collect() }
}

fn node_store(of: &MemoryStore, lost: u8) -> Arc<dyn Store> {
    let dice = Env::seeded(11);
    Arc::new(of.another_node(Box::new(move || percent(&dice) < lost)))
}

fn percent(dice: &Env) -> u8 {
    let mut byte = [0];
    dice.fill(&mut byte);
    byte[0] % 100
}

/// Passes every connection on to any of the nodes that serve.
async fn balance(listener: TcpListener, nodes: Vec<(SocketAddr, Arc<AtomicBool>)>) {
    let dice = Env::seeded(7);
    loop {
        let Ok((mut incoming, _)) = listener.accept().await else { continue };
        let serving: Vec<SocketAddr> =
            nodes.iter().filter(|(_, serves)| serves.load(Ordering::Relaxed)).map(|(node, _)| *node).collect();
        let node = serving[usize::from(percent(&dice)) % serving.len()];
        tokio::spawn(async move {
            if let Ok(mut outgoing) = TcpStream::connect(node).await {
                let _ = tokio::io::copy_bidirectional(&mut incoming, &mut outgoing).await;
            }
        });
    }
}

/// As the first one, but with a data folder of its own: keys come from the database, artifacts are in a common folder.
async fn node_options(first: &Options, number: usize, listener: &TcpListener, store: &dyn Store, env: &Env) -> Options {
    let home = first.data.parent().unwrap();
    let mut options = first.clone();
    if number > 0 {
        options.data = home.join(format!("hub-{number}"));
    }
    options.artifacts = Some(home.join("artifacts"));
    let nodes = options.nodes.as_mut().expect("one of several nodes");
    nodes.cluster_key = Some(open_cluster_key(&home.join("cluster.key"), store, env).await.unwrap());
    nodes.url = Some(format!("http://{}", listener.local_addr().unwrap()));
    options
}

/// Reserves an address, so that only sockets that share it on purpose can bind to it.
fn reserve(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

// === impl World ===

impl World {
    pub async fn start() -> Self {
        Self::tuned(|_| {}).await
    }

    pub async fn tuned(tune: impl FnOnce(&mut Options)) -> Self {
        Self::on_nodes(node_stores(usual_nodes(), 50), tune).await
    }

    /// On the stores of [`node_stores`].
    pub async fn on_nodes(stores: Vec<Arc<dyn Store>>, tune: impl FnOnce(&mut Options)) -> Self {
        Self::with(tempfile::tempdir().unwrap(), stores, Env::system(), tune).await
    }

    /// On a paused clock, with frequent sweeps.
    pub async fn timed(engine: Engine, tune: impl FnOnce(&mut Options)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let stores = match engine {
            Engine::Model => node_stores(usual_nodes(), 50),
            Engine::Nodes => node_stores(NODES, 50),
            Engine::Sqlite => vec![Arc::new(SqlStore::open(&data.path().join("hub.db")).unwrap()) as Arc<dyn Store>],
        };
        let tune = |options: &mut Options| {
            options.sweep_every = Duration::from_millis(10);
            tune(options);
        };
        Self::with(data, stores, Env::seeded(7), tune).await
    }

    /// With a second tenant. The client is its owner.
    pub async fn two_tenants(engine: Engine) -> (Self, TestCaller) {
        let (data, env) = (tempfile::tempdir().unwrap(), Env::seeded(7));
        let other = env.tenant_id();
        // Both may have callbacks to this machine.
        let callable = |options: &mut Options| {
            options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
            options.tools = Some("/mcp".to_owned());
        };
        let world = match engine {
            Engine::Model | Engine::Nodes => {
                let store = Arc::new(MemoryStore::new());
                let nodes = if engine == Engine::Nodes { NODES } else { usual_nodes() };
                let mut stores: Vec<Arc<dyn Store>> = vec![store.clone()];
                stores.extend((1..nodes).map(|_| node_store(&store, 50)));
                let world = Self::with(data, stores, env, callable).await;
                store.create_tenant(other, "other", world.env.now()).await.unwrap();
                world
            }
            Engine::Sqlite => {
                let store = Arc::new(SqlStore::open(&data.path().join("hub.db")).unwrap());
                let world = Self::with(data, vec![store.clone()], env, callable).await;
                store.create_tenant(other, "other", world.env.now()).await.unwrap();
                world
            }
        };
        let context = || WriteContext::new(other, WriteContext::SYSTEM, world.env.now());
        let user = NewUser { id: world.env.user_id(), name: "owner".to_owned(), role: Role::Owner, password: None };
        let user = world.store.create_user(context(), user).await.unwrap();
        let secret = Kind::ApiKey.generate(&world.env);
        let key = NewKey {
            id: world.env.key_id(),
            opening: None,
            issuer: None,
            agent: None,
            name: "other".to_owned(),
            role: Role::Owner,
            user: Some(user.id),
            scopes: None,
            secret: secret.hash(),
            expires_at: None,
        };
        world.store.create_key(context(), key).await.unwrap();
        let client = world.anonymous().key(secret.expose());
        (world, client)
    }

    /// On an in-memory store that counts calls.
    pub async fn counted(tune: impl FnOnce(&mut Options)) -> (Self, Arc<Counting>) {
        let store = Arc::new(Counting::new(Arc::new(MemoryStore::new())));
        let data = tempfile::tempdir().unwrap();
        (Self::with(data, vec![store.clone()], Env::seeded(7), tune).await, store)
    }

    /// Stops a hub on SQLite and restarts it on the same port, as a new process would.
    pub async fn restart(self) -> Self {
        self.away(Duration::ZERO).await
    }

    /// The same, after some time without a hub.
    pub async fn away(self, during: Duration) -> Self {
        let options = self.hub.options().clone();
        self.away_with(during, options).await
    }

    /// Restarts it with other options.
    pub async fn retuned(self, tune: impl FnOnce(&mut Options)) -> Self {
        let mut options = self.hub.options().clone();
        tune(&mut options);
        self.away_with(Duration::ZERO, options).await
    }

    async fn away_with(self, during: Duration, options: Options) -> Self {
        let env = self.env.clone();
        // Reserves the port without listening, so that calls meanwhile are refused.
        let kept = reserve(options.listen);
        let (served, data) = self.stop();
        served.await.unwrap();
        if !during.is_zero() {
            env.advance(during);
        }
        let store = Arc::new(SqlStore::open(&data.path().join("hub.db")).unwrap());
        let listener = reserve(options.listen).listen(BACKLOG).unwrap();
        drop(kept);
        Self::on(listener, data, vec![store], env, options).await
    }

    pub async fn on_sqlite() -> Self {
        let data = tempfile::tempdir().unwrap();
        let store = SqlStore::open(&data.path().join("hub.db")).unwrap();
        Self::with(data, vec![Arc::new(store)], Env::system(), |_| {}).await
    }

    async fn with(data: TempDir, stores: Vec<Arc<dyn Store>>, env: Env, tune: impl FnOnce(&mut Options)) -> Self {
        let listener = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).listen(BACKLOG).unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = Options::new(data.path().join("hub"), address);
        options.pairing_failures_per_minute = 10_000;
        options.failures_per_minute = 1_000_000;
        options.anonymous_per_minute = 1_000_000;
        options.disk_reserve = Some(0);
        if stores.len() > 1 {
            options.nodes = Some(NodeOptions::default());
        }
        tune(&mut options);
        Self::on(listener, data, stores, env, options).await
    }

    async fn on(listener: TcpListener, data: TempDir, stores: Vec<Arc<dyn Store>>, env: Env, options: Options) -> Self {
        let address = options.listen;
        let (mut nodes, mut served, mut balancer) = (Vec::new(), tokio::task::JoinSet::new(), None);
        if let [store] = &stores[..] {
            nodes.push(TestNode::start(listener, store.clone(), env.clone(), options, &mut served).await);
        } else {
            for (number, store) in stores.iter().enumerate() {
                let listener = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).listen(BACKLOG).unwrap();
                let options = node_options(&options, number, &listener, &**store, &env).await;
                nodes.push(TestNode::start(listener, store.clone(), env.clone(), options, &mut served).await);
            }
            balancer = Some(tokio::spawn(balance(
                listener,
                nodes.iter().map(|node| (node.address, node.serves.clone())).collect(),
            )));
        }
        let served = tokio::spawn(async move {
            while let Some(ended) = served.join_next().await {
                ended.unwrap();
            }
            if let Some(balancer) = balancer {
                balancer.abort();
            }
        });
        let key = std::fs::read_to_string(data.path().join("hub/admin.key")).unwrap();
        let owner = TestCaller::anonymous(address).key(key.trim());
        let (hub, store) = (nodes[0].hub.clone(), nodes[0].store.clone());
        Self { hub, store, env, owner, address, data, nodes, served }
    }

    /// Starts one more node. Only calls at it reach it.
    pub async fn start_node(&mut self, store: Arc<dyn Store>) -> usize {
        let listener = reserve(SocketAddr::from(([127, 0, 0, 1], 0))).listen(BACKLOG).unwrap();
        let mut served = tokio::task::JoinSet::new();
        let options = node_options(self.hub.options(), self.nodes.len(), &listener, &*store, &self.env).await;
        self.nodes.push(TestNode::start(listener, store, self.env.clone(), options, &mut served).await);
        served.detach_all();
        self.nodes.len() - 1
    }

    /// The folder for artifacts.
    pub fn blobs(&self) -> PathBuf {
        self.hub.options().artifacts.clone().unwrap_or_else(|| self.data.path().join("hub/blobs"))
    }

    /// The same caller, at one of the nodes.
    pub fn at(&self, node: usize, caller: &TestCaller) -> TestCaller {
        let host = self.address.to_string();
        TestCaller { address: self.nodes[node].address, ..caller.with("host", &host) }
    }

    pub fn advance(&self, by: Duration) {
        self.env.advance(by);
    }

    /// The rows of the tenant's log with this type: actor and data.
    pub async fn audit(&self, kind: &str) -> Vec<(String, Value)> {
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let page = self.owner.get(&format!("/api/v1/audit?after={after}&limit=200")).await.expect(200);
            let rows = page["events"].as_array().unwrap();
            let rows = rows.iter().filter(|row| row["type"] == kind);
            found.extend(rows.map(|row| (row["actor"].as_str().unwrap().to_owned(), row["data"].clone())));
            if page["next"].as_i64() == Some(after) {
                return found;
            }
            after = page["next"].as_i64().unwrap();
        }
    }

    /// What the owner reads at the path, once it matches.
    pub async fn until(&self, path: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let read = self.owner.get(path).await.expect(200);
            if fits(&read) {
                return read;
            }
            assert!(begun.elapsed() < PATIENCE, "it never fits: {read}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn anonymous(&self) -> TestCaller {
        TestCaller::anonymous(self.address)
    }

    /// Creates an agent and returns its id.
    pub async fn agent(&self, name: &str) -> String {
        let reply = self.owner.post("/api/v1/agent-accounts", json!({"name": name})).await.expect(201);
        reply["agent_id"].as_str().unwrap().to_owned()
    }

    pub async fn code(&self, agent: &str) -> String {
        let reply = self.owner.post(&format!("/api/v1/agent-accounts/{agent}/pairing-codes"), json!({})).await;
        reply.expect(201)["pairing_code"].as_str().unwrap().to_owned()
    }

    /// Pairs a new device with the agent.
    pub async fn device(&self, agent: &str) -> TestDevice {
        self.device_of(&self.owner, agent).await
    }

    /// The same with a code of this person's.
    pub async fn device_of(&self, person: &TestCaller, agent: &str) -> TestDevice {
        let code = person.post(&format!("/api/v1/agent-accounts/{agent}/pairing-codes"), json!({})).await.expect(201);
        let code = code["pairing_code"].as_str().unwrap();
        let body = json!({"pairing_token": code, "device_name": "laptop", "labels": {"host_type": "shell"}});
        let path = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
        let reply = self.anonymous().post(path, body).await.expect(200);
        let text = |name: &str| reply[name].as_str().unwrap().to_owned();
        TestDevice {
            client: self.anonymous().with("x-runtime-token", &text("runtime_token")),
            agent: text("agent_id"),
            runtime: text("runtime_id"),
            token: text("runtime_token"),
        }
    }

    /// Creates a run for the agent and returns it.
    pub async fn run(&self, agent: &str) -> Value {
        let body = json!({"agent_id": agent, "input": {"text": "hello"}});
        self.owner.post("/api/v1/task-runs", body).await.expect(201)
    }

    /// A key of the owner's tenant with this role.
    pub async fn key(&self, role: &str) -> TestCaller {
        let reply = self.owner.post("/api/v1/api-keys", json!({"name": role, "role": role})).await.expect(201);
        self.anonymous().key(reply["api_key"].as_str().unwrap())
    }

    /// Stops the hub. The handle resolves when it has stopped.
    pub fn stop(mut self) -> (JoinHandle<()>, TempDir) {
        for node in &mut self.nodes {
            node.stop();
        }
        (self.served, self.data)
    }
}

// === impl TestNode ===

impl TestNode {
    async fn start(
        listener: TcpListener,
        store: Arc<dyn Store>,
        env: Env,
        options: Options,
        served: &mut tokio::task::JoinSet<()>,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let hub = Hub::start(options, store.clone(), env).await.unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let router = router(hub.clone());
        let handle = hub.clone();
        served.spawn(async move {
            serve(listener, router, handle, async move {
                let _ = stopped.await;
            })
            .await;
        });
        Self { hub, store, address, serves: Arc::new(AtomicBool::new(true)), stop: Some(stop) }
    }

    /// Stops it in order.
    pub fn stop(&mut self) {
        self.serves.store(false, Ordering::Relaxed);
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// From now on it neither reads nor writes, as if its process hung.
    pub async fn kill(&self) {
        self.serves.store(false, Ordering::Relaxed);
        self.store.close().await;
    }
}

// === impl TestDevice ===

impl TestDevice {
    pub async fn pull(&self, wait_ms: u64) -> HttpReply {
        self.pull_enforcing(wait_ms, "cwd_only,no_network,no_exec").await
    }

    /// As a device that enforces these limits.
    pub async fn pull_enforcing(&self, wait_ms: u64, limits: &str) -> HttpReply {
        let enforces = if limits.is_empty() { String::new() } else { format!("&enforces={limits}") };
        let path = format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms={wait_ms}{enforces}", self.agent);
        self.client.post(&path, json!({})).await
    }

    /// Claims the next run, or null.
    pub async fn try_claim(&self) -> Value {
        self.pull(0).await.expect(200)["task_run"].clone()
    }

    /// Claims the next run, which must exist.
    pub async fn claim(&self) -> Value {
        let reply = self.pull(0).await.expect(200);
        assert!(reply["task_run"].is_object(), "nothing to claim: {reply}");
        reply["task_run"].clone()
    }
}

// === impl TestCaller ===

impl TestCaller {
    pub fn anonymous(address: SocketAddr) -> Self {
        Self { address, headers: Vec::new() }
    }

    pub fn key(&self, key: &str) -> Self {
        self.with("authorization", &format!("Bearer {key}"))
    }

    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.retain(|(known, _)| *known != name);
        headers.push((name, value.to_owned()));
        Self { address: self.address, headers }
    }

    /// The value of a fixed header.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value.as_str())
    }

    pub async fn get(&self, path: &str) -> HttpReply {
        self.call(Method::GET, path, Bytes::new()).await
    }

    pub async fn delete(&self, path: &str) -> HttpReply {
        self.call(Method::DELETE, path, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> HttpReply {
        self.with("content-type", "application/json").call(Method::POST, path, body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> HttpReply {
        self.with("content-type", "application/json").call(Method::PUT, path, body.to_string()).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> HttpReply {
        self.with("content-type", "application/json").call(Method::PATCH, path, body.to_string()).await
    }

    pub async fn call(&self, method: Method, path: &str, body: impl Into<Bytes>) -> HttpReply {
        let response = timeout(PATIENCE, self.send(method, path, body.into())).await.expect("an answer in time");
        let (parts, body) = response.into_parts();
        let body = timeout(PATIENCE, body.collect()).await.expect("a body in time").unwrap().to_bytes();
        HttpReply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Opens a stream, which must return 200.
    pub async fn follow(&self, path: &str) -> SseEvents {
        let client = self.with("accept", "text/event-stream");
        let response = timeout(PATIENCE, client.send(Method::GET, path, Bytes::new())).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        SseEvents { response, text: String::new() }
    }

    /// Dropping the future closes the connection.
    pub async fn send(&self, method: Method, path: &str, body: Bytes) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if !self.headers.iter().any(|(name, _)| *name == "host") {
            request = request.header(header::HOST, self.address.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(body)).unwrap();
        let connection = tokio::spawn(connection);
        let abort = AbortOnDrop(Some(connection.abort_handle()));
        let response = sender.send_request(request).await.unwrap();
        abort.keep();
        response
    }
}

struct AbortOnDrop(Option<tokio::task::AbortHandle>);

impl AbortOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

// === impl HttpReply ===

impl HttpReply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The body, if the status matches.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        self.json()
    }

    /// Status and code of an error, whose body must have a message and a hint.
    #[track_caller]
    pub fn refusal(&self) -> (u16, String) {
        let body = self.json();
        let text = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty() && !text("hint").is_empty(), "not a clear refusal: {} {body}", self.status);
        (self.status, text("code"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

// === impl SseEvents ===

impl SseEvents {
    /// The next message. `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let message = SseEvent::parse(frame);
                self.text = rest.to_owned();
                match message {
                    Some(message) => return Some(message),
                    None => continue,
                }
            }
            let frame = timeout(PATIENCE, self.response.body_mut().frame()).await.expect("an event in time")?;
            let Ok(frame) = frame else { return None };
            if let Ok(data) = frame.into_data() {
                self.text.push_str(std::str::from_utf8(&data).unwrap());
            }
        }
    }

    pub async fn rest(mut self) -> Vec<SseEvent> {
        let mut messages = Vec::new();
        while let Some(message) = self.next().await {
            messages.push(message);
        }
        messages
    }
}

// === impl SseEvent ===

impl SseEvent {
    fn parse(frame: &str) -> Option<Self> {
        let field = |name: &str| {
            let lines: Vec<&str> = frame.lines().filter_map(|line| line.strip_prefix(name)).collect();
            (!lines.is_empty()).then(|| lines.join("\n"))
        };
        let data = serde_json::from_str(&field("data: ")?).unwrap();
        Some(Self { id: field("id: ")?.parse().unwrap(), event: field("event: ")?, data })
    }
}
