//! Our hub, on a disk, so that it can be restarted.

use std::{sync::Arc, time::Duration};

use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::{Handle, Hub, Options, Principal, control::CallHeaders, control::CreatedRun, router, serve};
use attache_protocol::{
    Json, RunId,
    env::Env,
    rules::{recovery::Recovery, run::RunStatus},
    wire::{
        account::{Account, AccountRequest, PeerInfo, PeerRequest},
        run::{CreateRunRequest, Run},
    },
};
use attache_store::sql::SqlStore;
use attache_testkit::{FaultyProxy, ProxyFaults};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{net::TcpListener, runtime::Runtime, sync::oneshot, task::JoinHandle, time::timeout};

pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A cable that is only cut by hand.
const CALM: ProxyFaults = ProxyFaults { cut: 0, halve: 0, duplicate: 0, delay: 0, max_delay: Duration::ZERO };

pub(super) struct OwnHubPeer {
    pub(super) hub: Handle,
    pub(super) owner: Principal,
    pub(super) url: String,
    pub(super) key: String,
    data: TempDir,
    tune: fn(&mut Options),
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    /// Of a hub that can be killed.
    runtime: Option<AbortingRuntime>,
}

/// A runtime that does not wait for what runs in it.
struct AbortingRuntime(Option<Runtime>);

impl OwnHubPeer {
    pub(super) async fn start() -> Self {
        Self::tuned(|_| {}).await
    }

    pub(super) async fn tuned(tune: fn(&mut Options)) -> Self {
        Self::open(tempfile::tempdir().unwrap(), tune).await
    }

    /// A hub in a runtime of its own, with which everything of it ends at once.
    pub(super) async fn mortal() -> Self {
        Self::born(tempfile::tempdir().unwrap()).await
    }

    async fn born(data: TempDir) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ours = runtime.spawn(Self::open(data, |_| {})).await.unwrap();
        Self { runtime: Some(AbortingRuntime(Some(runtime))), ..ours }
    }

    /// The same hub again, after it was killed in the middle of everything.
    pub(super) async fn reborn(self) -> Self {
        let Self { runtime, data, hub, .. } = self;
        drop(hub);
        drop(runtime.unwrap());
        Self::born(data).await
    }

    /// A hub that is reached by its cable alone, which can be cut.
    pub(super) async fn behind_a_cable() -> (Self, FaultyProxy) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cable = FaultyProxy::start(listener.local_addr().unwrap(), 1, CALM).await.unwrap();
        let url = format!("http://{}", cable.address);
        (Self::serve(tempfile::tempdir().unwrap(), listener, Some(url), |_| {}).await, cable)
    }

    async fn open(data: TempDir, tune: fn(&mut Options)) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(data, listener, None, tune).await
    }

    async fn serve(data: TempDir, listener: TcpListener, public_url: Option<String>, tune: fn(&mut Options)) -> Self {
        let address = listener.local_addr().unwrap();
        let mut options = Options::new(data.path().join("hub"), address);
        options.public_url = public_url;
        options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.0/8".parse().unwrap()] });
        options.cards_every = Duration::from_millis(200);
        options.disk_reserve = Some(0);
        tune(&mut options);
        let key_file = options.data.join("admin.key");
        let store = SqlStore::open(&data.path().join("hub.db")).unwrap();
        let hub = Hub::start(options, Arc::new(store), Env::system()).await.unwrap();
        let routes = router(hub.clone()).merge(attache_a2a::router(hub.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, routes, hub.clone(), async move {
            let _ = stopped.await;
        }));
        let key = std::fs::read_to_string(key_file).unwrap().trim().to_owned();
        let owner = hub.authenticate_key(&key).await.unwrap();
        let url = hub.origin();
        Self { hub, owner, url, key, data, tune, stop, served, runtime: None }
    }

    /// The same hub again, after it was stopped.
    pub(super) async fn restart(self) -> Self {
        let Self { stop, served, data, hub, tune, .. } = self;
        stop.send(()).unwrap();
        served.await.unwrap();
        drop(hub);
        Self::open(data, tune).await
    }

    pub(super) async fn add(&self, name: &str, url: &str, key: Option<&str>) -> Account {
        self.try_add(name, url, key, None).await.unwrap()
    }

    pub(super) async fn try_add(
        &self,
        name: &str,
        url: &str,
        key: Option<&str>,
        card_pin: Option<String>,
    ) -> attache_hub::Result<Account> {
        let peer = PeerRequest { url: url.to_owned(), key: key.map(str::to_owned), card_pin };
        let request = AccountRequest { name: Some(name.to_owned()), peer: Some(peer), ..AccountRequest::default() };
        self.hub.create_account(&self.owner, request).await
    }

    /// What the hub knows of the agent outside.
    pub(super) async fn peer(&self, name: &str) -> PeerInfo {
        self.hub.account(&self.owner, name).await.unwrap().peer.unwrap()
    }

    /// A run with this input.
    pub(super) async fn run(&self, agent: &str, input: Value) -> RunId {
        let input = Some(Json::from_text(input.to_string()).unwrap());
        let request = CreateRunRequest { agent_id: agent.to_owned(), input, ..CreateRunRequest::default() };
        let created = self.hub.create_run(&self.owner, request, CallHeaders::default()).await.unwrap();
        let (CreatedRun::New(run) | CreatedRun::Existing(run)) = created;
        run.task_run_id
    }

    pub(super) async fn read(&self, run: RunId) -> Run {
        self.hub.run(&self.owner, run).await.unwrap()
    }

    /// The run as soon as it fits.
    pub(super) async fn when(&self, run: RunId, fits: impl Fn(&Run) -> bool) -> Run {
        let looked = async {
            loop {
                let found = self.read(run).await;
                if fits(&found) {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match timeout(PATIENCE, looked).await {
            Ok(found) => found,
            Err(_) => panic!("the run stays so: {:?}", self.read(run).await),
        }
    }

    pub(super) async fn ended(&self, run: RunId) -> Run {
        self.when(run, |run| run.status.is_terminal()).await
    }

    pub(super) async fn in_state(&self, run: RunId, recovery: Recovery) -> Run {
        self.when(run, |run| run.status == RunStatus::Running && run.recovery == Some(recovery)).await
    }

    pub(super) async fn get(&self, path: &str) -> String {
        let answer = reqwest::Client::new().get(format!("{}{path}", self.url)).bearer_auth(&self.key).send().await;
        answer.unwrap().text().await.unwrap()
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = reqwest::Client::new().post(format!("{}{path}", self.url)).bearer_auth(&self.key);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        (answer.status().as_u16(), serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    /// The events of the run, each as its type and data.
    pub(super) async fn events(&self, run: RunId) -> Vec<(String, Value)> {
        let text = self.get(&format!("/api/v1/task-runs/{run}/events")).await;
        let page: Value = serde_json::from_str(&text).unwrap();
        let events = page["events"].as_array().unwrap_or_else(|| panic!("{text}"));
        events.iter().map(|event| (event["type"].as_str().unwrap().to_owned(), event["data"].clone())).collect()
    }

    /// What the events say of the task outside, in order: its id and its state.
    pub(super) async fn native(&self, run: RunId) -> Vec<(String, String, String)> {
        let of_peer = |(kind, data): (String, Value)| {
            let kind = kind.strip_prefix("channel.peer_task.")?.to_owned();
            let text = |name: &str| data[name].as_str().unwrap_or("-").to_owned();
            Some((kind, text("peer_task_id"), text("native_status")))
        };
        self.events(run).await.into_iter().filter_map(of_peer).collect()
    }
}

impl Drop for AbortingRuntime {
    fn drop(&mut self) {
        self.0.take().unwrap().shutdown_background();
    }
}

/// The output or the error of a run.
pub(super) fn result(run: &Run) -> Value {
    serde_json::from_str(&serde_json::to_string(&run.task_result).unwrap()).unwrap()
}
