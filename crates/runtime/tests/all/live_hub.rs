//! A real hub in this process that can be restarted, and a runtime paired with it.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use attache_client::{HubClient as Client, HubClientOptions, HubCredential, PermissionFilter};
use attache_hub::{Hub, router, serve};
use attache_protocol::{
    RunId, Secret,
    env::Env,
    rules::{permission::PermissionState, run::RunStatus},
    wire::{
        account::AccountRequest,
        permission::{DecisionRequest, PermissionRequest},
        run::{CreateRunRequest, Run},
    },
};
use attache_runtime::{
    ConnectionStatus, Options, RuntimeNotice, RuntimeService, Shutdown,
    profile::{Profile, Profiles},
};
use attache_store::{Store, sql::SqlStore};
use attache_testkit::{FaultyProxy, ProxyFaults};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::world::{RunningRuntime, RuntimeWorld};

/// Nothing here takes longer. A hang becomes a failure.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct LiveHub {
    /// The adapter, the home folder and the notices. Its hub is not used.
    pub(crate) world: RuntimeWorld,
    /// The client that people use.
    pub(crate) owner: Client,
    pub(crate) address: SocketAddr,
    pub(crate) agent: attache_protocol::AgentId,
    /// The connection between the device and the hub.
    pub(crate) proxy: FaultyProxy,
    served: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
    data: TempDir,
    tune: fn(&mut attache_hub::Options),
}

/// A connection without faults.
const GOOD: ProxyFaults = ProxyFaults { cut: 0, halve: 0, duplicate: 0, delay: 0, max_delay: Duration::ZERO };

impl LiveHub {
    pub(crate) async fn start() -> Self {
        Self::behind(1, GOOD).await
    }

    /// With a modified hub.
    pub(crate) async fn tuned(tune: fn(&mut attache_hub::Options)) -> Self {
        Self::with(1, GOOD, tune).await
    }

    /// The device reaches the hub over a connection with these faults. People reach it directly.
    pub(crate) async fn behind(seed: u64, faults: ProxyFaults) -> Self {
        Self::with(seed, faults, |_| {}).await
    }

    async fn with(seed: u64, faults: ProxyFaults, tune: fn(&mut attache_hub::Options)) -> Self {
        let data = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = FaultyProxy::start(address, seed, faults).await.unwrap();
        let served = Some(serve_on(listener, data.path().to_owned(), proxy.address, tune).await);
        let key = std::fs::read_to_string(data.path().join("hub/admin.key")).unwrap();
        let key = HubCredential::Key(Secret::new(key.trim().to_owned()));
        let owner = Client::new(HubClientOptions::new(format!("http://{address}"), key)).unwrap();
        let request = AccountRequest { name: Some("builder".to_owned()), ..AccountRequest::default() };
        let agent = owner.create_account(&request).await.unwrap().agent_id;
        let code = owner.create_pairing_code("builder").await.unwrap().pairing_code;
        let device = Client::new(HubClientOptions::new(format!("http://{address}"), HubCredential::None)).unwrap();
        let attached = device.attach(&Secret::new(code), Some("laptop"), None).await.unwrap();
        let world = RuntimeWorld::new().await;
        let mut profile = Profile::new(
            attached.agent_id,
            attached.runtime_id,
            attached.runtime_token,
            format!("http://{}/api/v1", proxy.address),
        );
        profile.local_agent_endpoint = Some(world.adapter.url.clone());
        profile.heartbeat_timeout_ms = attached.heartbeat_timeout_ms;
        profile.device_name = Some("laptop".to_owned());
        let profiles = Profiles::at(world.home.path(), Env::system());
        profiles.update(|set| set.insert(profile)).unwrap();
        Self { world, owner, address, agent, proxy, served, data, tune }
    }

    /// Changes the profile of the device before its runtime starts.
    pub(crate) fn change_profile(&self, change: impl FnOnce(&mut Profile)) {
        let profiles = Profiles::at(self.world.home.path(), Env::system());
        profiles
            .update(|set| {
                let key = set.active_profile.clone().unwrap();
                change(set.profiles.get_mut(&key).unwrap());
            })
            .unwrap();
    }

    pub(crate) fn runtime(&self) -> RunningRuntime {
        self.runtime_with(|_| {})
    }

    pub(crate) fn runtime_with(&self, change: impl FnOnce(&mut Options)) -> RunningRuntime {
        let shutdown = Shutdown::default();
        let mut options = self.world.options();
        change(&mut options);
        let runtime = RuntimeService::new(options).unwrap();
        RunningRuntime::new(tokio::spawn(runtime.run(shutdown.clone())), shutdown)
    }

    /// Starts the runtime and waits for its channel.
    pub(crate) async fn connected(&self) -> RunningRuntime {
        let running = self.runtime();
        self.noticed(|notice| matches!(notice, RuntimeNotice::ChannelOpen { .. })).await;
        running
    }

    pub(crate) fn connection(&self) -> Option<ConnectionStatus> {
        ConnectionStatus::read(self.world.home.path(), self.agent)
    }

    pub(crate) async fn noticed(&self, wanted: impl Fn(&RuntimeNotice) -> bool) {
        let look = async || self.world.notices.lock().unwrap().iter().any(&wanted).then_some(());
        let came = tokio::time::timeout(TEST_TIMEOUT / 2, eventually("a notice", look)).await;
        assert!(came.is_ok(), "received only these: {:#?}", self.world.notices.lock().unwrap());
    }

    pub(crate) fn count(&self, wanted: impl Fn(&RuntimeNotice) -> bool) -> usize {
        self.world.notices.lock().unwrap().iter().filter(|notice| wanted(notice)).count()
    }

    pub(crate) async fn create(&self, text: &str) -> RunId {
        let input = attache_protocol::Json::of(&json!({"text": text}));
        let request =
            CreateRunRequest { agent_id: "builder".to_owned(), input: Some(input), ..CreateRunRequest::default() };
        self.owner.create_run(&request).await.unwrap().task_run_id
    }

    pub(crate) async fn run_with(&self, run: RunId, status: RunStatus) -> Run {
        eventually("the run's state", async || {
            let found = self.owner.run(run).await.ok()?;
            (found.status == status).then_some(found)
        })
        .await
    }

    /// The only waiting permission request.
    pub(crate) async fn pending(&self) -> PermissionRequest {
        eventually("a permission request", async || {
            let filter = PermissionFilter { state: Some(PermissionState::Pending), ..PermissionFilter::default() };
            let mut pending = self.owner.permissions(&filter).await.ok()?.permission_requests;
            assert!(pending.len() <= 1, "{pending:#?}");
            pending.pop()
        })
        .await
    }

    pub(crate) async fn decide(&self, request: &PermissionRequest, approved: bool) {
        let decision = DecisionRequest {
            approved,
            scope: attache_protocol::rules::permission::DecisionScope::Once,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: Some("as you wish".to_owned()),
        };
        self.owner.decide(request.permission_request_id, &decision).await.unwrap();
    }

    /// The types and data of the run's events of these kinds.
    pub(crate) async fn events(&self, run: RunId, kinds: &[&str]) -> Vec<(String, Value)> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let page = self.owner.run_events(run, after, None).await.unwrap();
            if page.events.is_empty() {
                return events;
            }
            after = page.next;
            let wanted = page.events.into_iter().filter(|event| kinds.contains(&event.kind.as_str()));
            events.extend(wanted.map(|event| (event.kind, event.data.parse().unwrap())));
        }
    }

    pub(crate) async fn stop_hub(&mut self) {
        let (stop, served) = self.served.take().unwrap();
        stop.send(()).unwrap();
        served.await.unwrap();
    }

    /// On the same port and data, like a new process.
    pub(crate) async fn start_hub(&mut self) {
        let listener = eventually("the port", async || TcpListener::bind(self.address).await.ok()).await;
        self.served = Some(serve_on(listener, self.data.path().to_owned(), self.proxy.address, self.tune).await);
    }
}

async fn serve_on(
    listener: TcpListener,
    data: PathBuf,
    proxy: SocketAddr,
    tune: fn(&mut attache_hub::Options),
) -> (oneshot::Sender<()>, JoinHandle<()>) {
    let mut options = attache_hub::Options::new(data.join("hub"), listener.local_addr().unwrap());
    options.public_url = Some(format!("http://{proxy}"));
    options.drain_limit = Duration::from_millis(200);
    options.disk_reserve = Some(0);
    tune(&mut options);
    let store: Arc<dyn Store> = Arc::new(SqlStore::open(&data.join("hub.db")).unwrap());
    let hub = Hub::start(options, store, Env::system()).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(serve(listener, router(hub.clone()), hub, async move {
        let _ = stopped.await;
    }));
    (stop, served)
}

/// Waits for something that nothing announces.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never came: {what}"))
}
