//! Push notifications, told to a receiver on loopback.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_a2a_wire::{
    PushAuthenticationInfo, PushConfig, SendConfiguration, SendMessage, StreamResponse, Task, TaskState, v03,
};
use attache_client::egress::{EgressGuard, EgressPolicy};
use attache_hub::Options;
use attache_protocol::Json;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde_json::json;
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};

use crate::{
    obedient::{request, steps},
    scene::{A2aFixture, world},
    speak::{PATIENCE, RefusalForm, TestBinding, TestOperation, TestVersion, every_way},
};

/// A subscriber. It keeps what it is told, and answers with the next status of its script, or 200.
pub struct PushReceiver {
    origin: String,
    shared: Arc<PushReceiverState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct PushReceiverState {
    told: Mutex<Vec<ReceivedPush>>,
    script: Mutex<VecDeque<u16>>,
    count: watch::Sender<usize>,
}

#[derive(Debug, Clone)]
pub struct ReceivedPush {
    pub headers: HeaderMap,
    pub body: String,
}

// === impl PushReceiver ===

impl PushReceiver {
    pub async fn start() -> Self {
        let shared = Arc::new(PushReceiverState::default());
        let app = axum::Router::new().fallback(hear).with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { origin, shared, task }
    }

    pub fn url(&self) -> String {
        format!("{}/told", self.origin)
    }

    pub fn script(&self, statuses: &[u16]) {
        self.shared.script.lock().unwrap().extend(statuses);
    }

    pub fn all(&self) -> Vec<ReceivedPush> {
        self.shared.told.lock().unwrap().clone()
    }

    /// The first so many, as soon as they are there.
    pub async fn first(&self, count: usize) -> Vec<ReceivedPush> {
        let mut seen = self.shared.count.subscribe();
        let enough = seen.wait_for(|seen| *seen >= count);
        timeout(PATIENCE, enough).await.unwrap_or_else(|_| panic!("{count} do not come: {:?}", self.all())).unwrap();
        self.all().into_iter().take(count).collect()
    }

    /// The newest in this state, as either version names it; what came before it is forgotten.
    pub async fn until(&self, new: &str, old: &str) -> ReceivedPush {
        self.until_all(new, old).await.pop().unwrap()
    }

    /// The same, and before it what came before.
    pub async fn until_all(&self, new: &str, old: &str) -> Vec<ReceivedPush> {
        let (new, old) = (format!("\"TASK_STATE_{new}\""), format!(r#""state":"{old}""#));
        let mut seen = self.shared.count.subscribe();
        let found = async {
            loop {
                {
                    let mut told = self.shared.told.lock().unwrap();
                    let at = told.iter().position(|it| it.body.contains(&new) || it.body.contains(&old));
                    if let Some(at) = at {
                        return told.drain(..=at).collect::<Vec<_>>();
                    }
                }
                seen.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {new}: {:?}", self.all()))
    }
}

impl Drop for PushReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hear(State(shared): State<Arc<PushReceiverState>>, headers: HeaderMap, body: String) -> StatusCode {
    let status = shared.script.lock().unwrap().pop_front().unwrap_or(200);
    shared.told.lock().unwrap().push(ReceivedPush { headers, body });
    shared.count.send_modify(|count| *count += 1);
    StatusCode::from_u16(status).unwrap()
}

// === impl ReceivedPush ===

impl ReceivedPush {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// What a subscriber of 1.0 is told.
    fn update(&self) -> StreamResponse {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The whole task, which a subscriber of 0.3 is told.
    fn task(&self) -> Task {
        serde_json::from_str::<v03::TaskV03>(&self.body).unwrap().into()
    }

    fn state(&self, version: TestVersion) -> TaskState {
        match version {
            TestVersion::V10 => match self.update() {
                StreamResponse::StatusUpdate(update) => update.status.state,
                other => panic!("{other:?} is no change of state"),
            },
            TestVersion::V03 => self.task().status.state,
        }
    }
}

fn tune(options: &mut Options) {
    options.egress = EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse().unwrap()] });
    options.outbox.look_every = Duration::from_millis(10);
    options.outbox.retries = vec![Duration::from_millis(10); 5];
}

fn subscriber(receiver: &PushReceiver) -> PushConfig {
    PushConfig {
        id: Some("mine".to_owned()),
        url: receiver.url(),
        token: Some("my word".to_owned()),
        authentication: Some(PushAuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials: Some("xyz".to_owned()),
        }),
        ..PushConfig::default()
    }
}

fn subscribed(message: attache_a2a_wire::Message, push: PushConfig) -> SendMessage {
    let configuration = SendConfiguration { task_push_notification_config: Some(push), ..SendConfiguration::default() };
    SendMessage { configuration: Some(configuration), ..request(message) }
}

#[tokio::test]
async fn each_change_of_state_arrives_as_its_version_tells_it() {
    for world in [world(), world().on_sqlite()] {
        let scene = A2aFixture::start(world.tuned(tune)).await;
        for (binding, version) in every_way() {
            let client = scene.client(binding, version);
            let receiver = PushReceiver::start().await;
            let told = json!([{"chunk": "hel"}, {"ask": "Go on?"}, {"output": {"text": "hello"}}]);
            let told = subscribed(steps(&format!("{binding:?}{version:?}"), told), subscriber(&receiver));
            let asked = client.send(told).await;
            assert_eq!(asked.status.state, TaskState::TaskStateInputRequired);
            let answer = crate::obedient::message("yes", vec![attache_a2a_wire::Part::text("yes")]);
            let answer = attache_a2a_wire::Message { task_id: Some(asked.id.clone()), ..answer };
            let done = client.send(request(answer)).await;
            let wanted = [
                TaskState::TaskStateWorking,
                TaskState::TaskStateInputRequired,
                TaskState::TaskStateWorking,
                TaskState::TaskStateCompleted,
            ];
            // With the end comes the artifact, by itself.
            let all = receiver.first(if version == TestVersion::V10 { 5 } else { 4 }).await;
            let statuses = match version {
                TestVersion::V10 => {
                    let (mut statuses, mut artifacts) = (Vec::new(), Vec::new());
                    for told in &all {
                        match told.update() {
                            StreamResponse::StatusUpdate(update) => statuses.push((update.metadata, update.status)),
                            StreamResponse::ArtifactUpdate(update) => artifacts.push(update.artifact),
                            other => panic!("{other:?} is no update"),
                        }
                    }
                    assert_eq!(Some(artifacts), done.artifacts, "{binding:?}");
                    statuses
                }
                TestVersion::V03 => {
                    let mut tasks: Vec<Task> = all.iter().map(ReceivedPush::task).collect();
                    tasks.sort_by_key(|task| generation(task.metadata.as_ref()));
                    assert_eq!((&tasks[1], &tasks[3]), (&asked, &done), "{binding:?}: what a caller reads");
                    tasks.into_iter().map(|task| (task.metadata, task.status)).collect()
                }
            };
            // They may overtake each other; the generation says which is newer.
            let mut statuses: Vec<_> = statuses;
            statuses.sort_by_key(|(metadata, _)| generation(metadata.as_ref()));
            let states: Vec<TaskState> = statuses.iter().map(|(_, status)| status.state).collect();
            assert_eq!(states, wanted, "{binding:?} {version:?}");
            assert_eq!((&statuses[1].1, &statuses[3].1), (&asked.status, &done.status), "{binding:?} {version:?}");
            for told in &all {
                let media_type = if version == TestVersion::V10 { "application/a2a+json" } else { "application/json" };
                assert_eq!(told.header("content-type"), Some(media_type));
                assert_eq!(told.header("a2a-version"), Some(version.as_str()));
                assert_eq!(told.header("x-a2a-notification-token"), Some("my word"));
                assert_eq!(told.header("authorization"), Some("Bearer xyz"));
            }
        }
        scene.world.stop().await;
    }
}

fn generation(metadata: Option<&Json>) -> i64 {
    let metadata: serde_json::Value = metadata.unwrap().parse().unwrap();
    metadata["https://attache.dev/ext/events/v1"]["generation"].as_i64().unwrap()
}

#[tokio::test]
async fn a_repeat_has_the_same_bytes() {
    let scene = A2aFixture::start(world().on_sqlite().tuned(tune)).await;
    for version in [TestVersion::V10, TestVersion::V03] {
        let client = scene.client(TestBinding::Rpc, version);
        let receiver = PushReceiver::start().await;
        // The first notification is refused twice.
        receiver.script(&[503, 500]);
        let told = json!([{"hold": true}, {"output": {"text": "hello"}}]);
        let told = subscribed(steps(version.as_str(), told), subscriber(&receiver));
        let configuration = told.configuration.map(|it| SendConfiguration { return_immediately: Some(true), ..it });
        let task = client.send(SendMessage { configuration, ..told }).await;
        let all = receiver.first(3).await;
        assert_eq!(all[0].body, all[1].body);
        assert_eq!(all[1].body, all[2].body);
        for name in ["content-type", "x-a2a-notification-token", "authorization", "a2a-version", "x-attache-delivery"] {
            assert_eq!(all[0].header(name), all[2].header(name), "{name}");
        }
        assert_eq!(all[0].state(version), TaskState::TaskStateWorking);
        scene.open_gate();
        client.until(&task.id, TaskState::TaskStateCompleted).await;
        receiver.until("COMPLETED", "completed").await;
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_deleted_config_is_told_nothing_more() {
    let scene = A2aFixture::start(world().on_sqlite().tuned(tune)).await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let (left, stays) = (PushReceiver::start().await, PushReceiver::start().await);
        let told = json!([{"hold": true}, {"output": {"text": "hello"}}]);
        let told = crate::obedient::immediate(steps(&format!("{binding:?}{version:?}"), told));
        let task = client.send(told).await;
        client.until(&task.id, TaskState::TaskStateWorking).await;
        let second = PushConfig { id: Some("other".to_owned()), ..subscriber(&stays) };
        client.once(TestOperation::create_push(&task.id, subscriber(&left))).await.unwrap();
        client.once(TestOperation::create_push(&task.id, second)).await.unwrap();
        client.once(TestOperation::delete_push(&task.id, "mine")).await.unwrap();
        scene.open_gate();
        stays.until("COMPLETED", "completed").await;
        assert_eq!(left.all().len(), 0, "{binding:?} {version:?}");
    }
    scene.world.stop().await;
}

#[tokio::test]
async fn a_private_address_needs_the_owners_word() {
    const URL: &str = "configuration.taskPushNotificationConfig.url";
    let scene = A2aFixture::start(world()).await;
    let receiver = PushReceiver::start().await;
    for (binding, version) in every_way() {
        let client = scene.client(binding, version);
        let id = format!("{binding:?}{version:?}");
        let told = subscribed(steps(&id, json!([])), subscriber(&receiver));
        let refusal = client.refused(TestOperation::Send(told)).await;
        let form = match binding {
            TestBinding::Rpc => RefusalForm::Rpc { http: 200, code: -32602 },
            TestBinding::Rest => RefusalForm::Rest { http: 400, code: 400, status: "INVALID_ARGUMENT".to_owned() },
            TestBinding::Grpc => RefusalForm::Grpc(tonic::Code::InvalidArgument),
        };
        assert_eq!((&refusal.form, refusal.violations[0].0.as_str()), (&form, URL), "{refusal:?}");
        let task = client.send(request(steps(&id, json!([{"ask": "?"}])))).await;
        let refusal = client.refused(TestOperation::create_push(&task.id, subscriber(&receiver))).await;
        assert!(refusal.message.contains("--egress-allow"), "{}", refusal.message);
    }
    assert_eq!(receiver.all().len(), 0);
    scene.world.stop().await;
}
