//! A hub that is restarted in the middle of a stream: who joins again misses nothing.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use attache_a2a_wire::{Artifact, StreamResponse, Task, TaskState};
use attache_hub::{Handle, Hub, Options, Principal, router, serve};
use attache_protocol::{
    Json, Secret,
    env::Env,
    wire::{
        account::AccountRequest,
        pairing::AttachRequest,
        run::{CompleteRequest, ProgressRequest},
    },
};
use attache_store::sql::SqlStore;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

use crate::{
    obedient::{message, request},
    speak::{TestBinding, TestClient, TestOperation, TestVersion, every_way},
};

/// A hub on a database that stays, on whatever port is free.
struct HubInstance {
    hub: Handle,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

impl HubInstance {
    async fn start(data: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut options = Options::new(data.join("hub"), address);
        options.drain_limit = Duration::from_secs(2);
        options.disk_reserve = Some(0);
        let store = Arc::new(SqlStore::open(&data.join("hub.db")).unwrap());
        let hub = Hub::start(options, store, Env::system()).await.unwrap();
        let surface = router(hub.clone()).merge(attache_a2a::router(hub.clone()));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, surface, hub.clone(), async move {
            let _ = stopped.await;
        }));
        Self { hub, address, stop, served }
    }

    async fn stop(self) {
        let _ = self.stop.send(());
        self.served.await.unwrap();
    }

    fn client(&self, key: &str, binding: TestBinding, version: TestVersion) -> TestClient {
        TestClient::new(binding, version, &format!("http://{}", self.address), "worker").key(key)
    }
}

/// What a client knows, by its own rules.
#[derive(Default)]
struct ClientView {
    state: Option<TaskState>,
    artifacts: Vec<Artifact>,
}

impl ClientView {
    fn hear(&mut self, update: &Json) {
        match update.parse::<StreamResponse>().unwrap() {
            StreamResponse::Task(Task { status, artifacts, .. }) => {
                self.state = Some(status.state);
                self.artifacts = artifacts.unwrap_or_default();
            }
            StreamResponse::StatusUpdate(update) => self.state = Some(update.status.state),
            StreamResponse::ArtifactUpdate(update) => {
                let known = self.artifacts.iter_mut().find(|it| it.artifact_id == update.artifact.artifact_id);
                match (known, update.append) {
                    (Some(known), Some(true)) => known.parts.extend(update.artifact.parts),
                    (Some(known), _) => *known = update.artifact,
                    (None, _) => self.artifacts.push(update.artifact),
                }
            }
            StreamResponse::Message(message) => panic!("{message:?}"),
        }
    }

    fn text(&self) -> String {
        let parts = self.artifacts.iter().flat_map(|artifact| &artifact.parts);
        parts
            .map(|part| match &part.content {
                attache_a2a_wire::PartContent::Text(text) => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

/// A device that works on one run, whichever hub is there.
struct DeviceWorker {
    token: String,
    run: attache_protocol::RunId,
}

impl DeviceWorker {
    async fn say(&self, hub: &Handle, text: &str) {
        let by = self.principal(hub).await;
        let report = ProgressRequest { epoch: Some(1), chunk: Some(Json::of(text)), ..ProgressRequest::default() };
        hub.progress(&by, self.run, report).await.unwrap();
    }

    async fn finish(&self, hub: &Handle, text: &str) {
        let by = self.principal(hub).await;
        let output = Json::from_text(format!(r#"{{"text":{}}}"#, Json::of(text).get())).unwrap();
        hub.complete(&by, self.run, CompleteRequest { epoch: Some(1), output, usage: None, inputs_taken: None })
            .await
            .unwrap();
    }

    async fn principal(&self, hub: &Handle) -> Principal {
        hub.authenticate_runtime(&self.token).await.unwrap()
    }
}

async fn device(life: &HubInstance, owner: &Principal) -> String {
    let code = life.hub.create_pairing_code(owner, "worker").await.unwrap();
    let request = AttachRequest { pairing_token: Secret::new(code.pairing_code), device_name: None, labels: None };
    life.hub.attach(life.address.ip(), request).await.unwrap().runtime_token
}

#[tokio::test]
async fn a_hub_restarted_in_the_middle_of_a_stream_loses_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut life = HubInstance::start(data.path()).await;
    let key = std::fs::read_to_string(data.path().join("hub/admin.key")).unwrap().trim().to_owned();
    let owner = life.hub.authenticate_key(&key).await.unwrap();
    let account = AccountRequest { name: Some("worker".to_owned()), ..AccountRequest::default() };
    life.hub.create_account(&owner, account).await.unwrap();
    let token = device(&life, &owner).await;
    for (binding, version) in every_way() {
        let who = format!("{binding:?} {version:?}");
        let client = life.client(&key, binding, version);
        let told = request(message(&who, vec![attache_a2a_wire::Part::text("count")]));
        let mut incoming = client.open(TestOperation::Stream(told)).await.unwrap();
        let mut known = ClientView::default();
        let first = incoming.next().await.unwrap();
        known.hear(&first);
        let Ok(StreamResponse::Task(task)) = first.parse::<StreamResponse>() else { panic!("{first:?}") };
        let by = life.hub.authenticate_runtime(&token).await.unwrap();
        let claimed = life.hub.pull(&by, "worker", Duration::from_secs(5)).await.unwrap().delivered().unwrap();
        assert_eq!(claimed.task_run_id.to_string(), task.id);
        let worker = DeviceWorker { token: token.clone(), run: claimed.task_run_id };
        let mut wanted = String::new();
        for number in 0..5 {
            let text = format!("{number} ");
            worker.say(&life.hub, &text).await;
            wanted.push_str(&text);
        }
        while !known.text().ends_with("2 ") {
            known.hear(&incoming.next().await.unwrap());
        }

        let watching = tokio::spawn(async move { incoming.rest().await });
        life.stop().await;
        let rest = watching.await.unwrap();
        rest.iter().for_each(|update| known.hear(update));
        assert_ne!(known.state, Some(TaskState::TaskStateCompleted), "{who}: the stream broke off");
        let before = known.text();
        assert!(wanted.starts_with(&before), "{who}: what was seen is in order: {before}");

        life = HubInstance::start(data.path()).await;
        let client = life.client(&key, binding, version);
        // Somebody works on while nobody watches.
        worker.say(&life.hub, "5 ").await;
        wanted.push_str("5 ");
        let mut incoming = client.open(TestOperation::subscribe(&task.id)).await.unwrap();
        known.hear(&incoming.next().await.unwrap());
        assert_eq!(known.text(), wanted, "{who}: the task holds what was missed");
        for number in 6..9 {
            let text = format!("{number} ");
            worker.say(&life.hub, &text).await;
            wanted.push_str(&text);
        }
        worker.finish(&life.hub, &format!("{wanted}end")).await;
        incoming.rest().await.iter().for_each(|update| known.hear(update));
        assert_eq!(known.text(), format!("{wanted}end"), "{who}: complete, in order, nothing twice");
        assert_eq!(known.state, Some(TaskState::TaskStateCompleted), "{who}");
        assert_eq!(client.get(&task.id).await.status.state, TaskState::TaskStateCompleted);
    }
    life.stop().await;
}
