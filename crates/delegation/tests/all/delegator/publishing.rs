//! A hub that is unreachable when a delegation ends receives the end later.

use std::{
    fs,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{DaemonMachine, DelegatorFixture, RemoteScript, TEST_TIMEOUT};

/// A hub that accepts delegations once it is opened.
#[derive(Clone)]
struct DelegationBoard {
    state: Arc<Mutex<DelegationBoardState>>,
    moved: watch::Sender<u64>,
}

#[derive(Default)]
struct DelegationBoardState {
    is_open: bool,
    /// Everything received, with its time, including refused requests.
    received: Vec<(Instant, Value)>,
    shown: Vec<Value>,
}

impl DelegationBoard {
    async fn start() -> (Self, String) {
        let board = Self { state: Arc::default(), moved: watch::channel(0).0 };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(board.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (board, url)
    }

    async fn until(&self, reached: impl Fn(&DelegationBoardState) -> bool) {
        let mut moved = self.moved.subscribe();
        let waiting = async {
            while !reached(&self.state.lock().unwrap()) {
                moved.changed().await.unwrap();
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.expect("the hub receives it");
    }
}

async fn answer(State(board): State<DelegationBoard>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let away = (StatusCode::SERVICE_UNAVAILABLE, "").into_response();
    if parts.method != Method::PUT {
        return away;
    }
    let mut shown: Value = serde_json::from_slice(&body).unwrap();
    let is_open = {
        let mut state = board.state.lock().unwrap();
        state.received.push((Instant::now(), shown["status"].clone()));
        if state.is_open {
            state.shown.push(shown["status"].clone());
        }
        state.is_open
    };
    board.moved.send_modify(|count| *count += 1);
    if !is_open {
        return away;
    }
    shown["delegation_id"] = json!(parts.uri.path().rsplit('/').next().unwrap());
    shown["owner"] = json!("user:ann");
    shown["updated_at"] = json!("2026-01-01T00:00:00.000Z");
    shown["cancel_requested"] = json!(false);
    (StatusCode::OK, shown.to_string()).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_was_unreachable_receives_the_end_later() {
    let (board, url) = DelegationBoard::start().await;
    let fixture = DelegatorFixture::new(RemoteScript::Work).await;
    let root = fixture.machine.root();
    let policy = root.join("awcp/policy.toml");
    let text = fs::read_to_string(&policy).unwrap();
    let hub = format!("[delegator]\nhub = {url:?}\nkey_file = {:?}\n", root.join("key"));
    fs::write(&policy, text.replacen("[delegator]\n", &hub, 1)).unwrap();
    let created = fixture.delegate().await;
    fixture.machine.ended(&created).await;
    // Longer than the end of a delegation waits for the hub.
    let late = Instant::now() + Duration::from_secs(4);
    board.until(|shown| shown.received.iter().any(|(at, status)| *at > late && status == "completed")).await;
    // The daemon stops before the hub is back, and the next daemon publishes the end.
    let unpublished = root.join("awcp/delegations").join(created.delegation_id.to_string()).join("unpublished");
    assert!(unpublished.exists());
    fixture.machine.stop.cancel();
    fixture.machine.running.await.unwrap();
    board.state.lock().unwrap().is_open = true;
    let (_client, stop, running) = DaemonMachine::run(&root).await;
    board.until(|shown| shown.shown == ["completed"]).await;
    let published = async {
        while unpublished.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, published).await.expect("the record says that the hub knows");
    stop.cancel();
    running.await.unwrap();
}
