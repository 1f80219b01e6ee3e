//! A scripted webhook receiver on loopback that records all deliveries, and a hub that may call it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_client::{
    egress::{EgressGuard, EgressPolicy},
    webhook::{self, VerifiedDelivery, WebhookError},
};
use attache_hub::Options;
use attache_protocol::{Secret, Timestamp};
use axum::{
    body::Bytes,
    extract::State,
    http::{HeaderMap, HeaderName, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};

use crate::{
    counting::Counting,
    world::{Engine, PATIENCE, TestCaller, TestDevice, World},
};

/// How the receiver answers the next delivery. Default: 200.
#[derive(Debug, Clone, Copy)]
pub enum ReceiverAnswer {
    Status(u16),
    With(u16, &'static str, &'static str),
    /// No answer.
    Never,
}

/// One delivery, as it arrived.
#[derive(Debug, Clone)]
pub struct ReceivedDelivery {
    pub place: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub struct WebhookReceiver {
    pub origin: String,
    shared: Arc<WebhookReceiverState>,
    read: Mutex<usize>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct WebhookReceiverState {
    told: Mutex<Vec<ReceivedDelivery>>,
    answers: Mutex<VecDeque<ReceiverAnswer>>,
    count: watch::Sender<usize>,
}

// === impl WebhookReceiver ===

impl WebhookReceiver {
    pub async fn start(answers: &[ReceiverAnswer]) -> Self {
        Self::start_at("127.0.0.1", answers).await
    }

    pub async fn start_at(address: &str, answers: &[ReceiverAnswer]) -> Self {
        let shared = Arc::new(WebhookReceiverState {
            answers: Mutex::new(answers.iter().copied().collect()),
            ..WebhookReceiverState::default()
        });
        let app = axum::Router::new().fallback(hear).with_state(shared.clone());
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { origin, shared, read: Mutex::new(0), task }
    }

    pub fn url(&self) -> String {
        format!("{}/done", self.origin)
    }

    /// The next delivery not yet read.
    pub async fn next(&self) -> ReceivedDelivery {
        let index = {
            let mut read = self.read.lock().unwrap();
            *read += 1;
            *read - 1
        };
        let mut count = self.shared.count.subscribe();
        timeout(PATIENCE, count.wait_for(|count| *count > index)).await.expect("a delivery in time").unwrap();
        self.shared.told.lock().unwrap()[index].clone()
    }

    pub fn count(&self) -> usize {
        *self.shared.count.borrow()
    }
}

impl Drop for WebhookReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn hear(
    State(shared): State<Arc<WebhookReceiverState>>,
    place: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answer = shared.answers.lock().unwrap().pop_front().unwrap_or(ReceiverAnswer::Status(200));
    let count = {
        let mut told = shared.told.lock().unwrap();
        told.push(ReceivedDelivery { place: place.to_string(), headers, body });
        told.len()
    };
    shared.count.send_replace(count);
    match answer {
        ReceiverAnswer::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        ReceiverAnswer::With(status, name, value) => {
            (StatusCode::from_u16(status).unwrap(), [(HeaderName::from_static(name), value)]).into_response()
        }
        ReceiverAnswer::Never => std::future::pending().await,
    }
}

// === impl ReceivedDelivery ===

impl ReceivedDelivery {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn id(&self) -> &str {
        self.headers[webhook::DELIVERY].to_str().unwrap()
    }

    pub fn verify(&self, secret: &str, now: Timestamp) -> Result<VerifiedDelivery, WebhookError> {
        let secret = Secret::new(secret.to_owned());
        webhook::verify(&secret, &self.headers, &self.body, now, webhook::TOLERANCE)
    }
}

/// A hub that may call this machine, on a paused clock, with an agent `builder`.
pub async fn world(engine: Engine, tune: impl FnOnce(&mut Options)) -> (World, TestDevice) {
    within(World::timed(engine, callable(tune)).await).await
}

/// The same, on an in-memory store that can hold back answers.
pub async fn holding(tune: impl FnOnce(&mut Options)) -> (World, TestDevice, Arc<Counting>) {
    let (world, store) = World::counted(callable(tune)).await;
    let (world, device) = within(world).await;
    (world, device, store)
}

fn callable(tune: impl FnOnce(&mut Options)) -> impl FnOnce(&mut Options) {
    |options| {
        options.egress = EgressGuard::new(EgressPolicy {
            allow: ["127.0.0.1", "127.0.0.2"].map(|host| host.parse().unwrap()).to_vec(),
        });
        options.outbox.look_every = Duration::from_millis(10);
        tune(options);
    }
}

async fn within(world: World) -> (World, TestDevice) {
    world.agent("builder").await;
    let device = world.device("builder").await;
    (world, device)
}

/// Calls `builder` with a callback and completes the run. Returns the delivery's id.
pub async fn completed(caller: &TestCaller, device: &TestDevice, url: &str) -> String {
    let body = json!({"task": "count", "agent_type": "builder", "callback_url": url});
    let call = caller.post("/api/a2a/call", body).await.expect(200)["call_id"].as_str().unwrap().to_owned();
    let run = device.claim().await;
    let path = format!("/api/v1/task-runs/{}/complete", run["task_run_id"].as_str().unwrap());
    device.client.post(&path, json!({"epoch": 1, "output": {"text": "nine"}})).await.expect(200);
    call.replace("a2a-", "dlv_")
}

pub async fn read(world: &World, delivery: &str) -> Value {
    world.owner.get(&format!("/api/v1/deliveries/{delivery}")).await.expect(200)
}

/// The delivery once it has this many attempts and this state.
pub async fn tried(world: &World, delivery: &str, attempts: i64, state: &str) -> Value {
    let look = async {
        loop {
            let found = read(world, delivery).await;
            if found["attempts"] == attempts && found["state"] == state {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, look).await.expect("the delivery to be there in time")
}

pub async fn secret(client: &TestCaller) -> String {
    client.get("/api/v1/deliveries/secret").await.expect(200)["secret"].as_str().unwrap().to_owned()
}
