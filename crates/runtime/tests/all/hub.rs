//! A fake hub that records every call and refuses what it is told to refuse.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_protocol::{RunId, Timestamp, env::Env};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct FakeHub {
    state: Arc<Mutex<FakeHubState>>,
    /// Changes on every update, for those who wait.
    moved: watch::Sender<u64>,
    pub(crate) url: String,
}

#[derive(Default)]
struct FakeHubState {
    calls: Vec<RecordedCall>,
    queue: VecDeque<Value>,
    /// Responses that replace the usual one, by the end of the path. Each is used once.
    scripts: Vec<(String, u16, Value)>,
    /// Refuses everything with this, until told otherwise.
    mood: Option<(u16, Value)>,
    events: Vec<Value>,
    running: Vec<Value>,
    cancelled: Vec<RunId>,
    /// The time on its clock. Default: the machine's.
    time: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RecordedCall {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) body: Value,
}

pub(crate) fn error(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message, "hint": format!("hint of {code}")}})
}

impl FakeHub {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hub = Self { state: Arc::default(), moved: watch::channel(0).0, url };
        let router = Router::new().fallback(answer).with_state(hub.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        hub
    }

    fn change<R>(&self, change: impl FnOnce(&mut FakeHubState) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.moved.send_modify(|count| *count += 1);
        result
    }

    /// Adds a run to the agent's queue.
    pub(crate) fn offer(&self, run: Value) {
        self.change(|hub| hub.queue.push_back(run));
    }

    pub(crate) fn refuse(&self, path_end: &str, status: u16, body: Value) {
        self.change(|hub| hub.scripts.push((path_end.to_owned(), status, body)));
    }

    pub(crate) fn refuse_all(&self, status: u16, body: Value) {
        self.change(|hub| hub.mood = Some((status, body)));
    }

    pub(crate) fn be_nice(&self) {
        self.change(|hub| hub.mood = None);
    }

    pub(crate) fn event(&self, kind: &str, data: Value) {
        self.change(|hub| {
            let seq = hub.events.len() + 1;
            hub.events.push(json!({"seq": seq, "type": kind, "at": "2026-01-01T00:00:00.000Z", "data": data}));
        });
    }

    /// What `GET /task-runs?status=running` and `GET /task-runs/{id}` return.
    pub(crate) fn claimed(&self, run: Value) {
        self.change(|hub| hub.running.push(run));
    }

    pub(crate) fn cancel_by_heartbeat(&self, run: RunId) {
        self.change(|hub| hub.cancelled.push(run));
    }

    pub(crate) fn stop_clock(&self, at: Timestamp) {
        self.change(|hub| hub.time = Some(at));
    }

    fn now(&self) -> Timestamp {
        self.state.lock().unwrap().time.unwrap_or_else(|| Env::system().now())
    }

    pub(crate) fn calls(&self, name: &str) -> Vec<RecordedCall> {
        self.all_calls(&[name])
    }

    /// The calls with any of these names, in order.
    pub(crate) fn all_calls(&self, names: &[&str]) -> Vec<RecordedCall> {
        let hub = self.state.lock().unwrap();
        hub.calls.iter().filter(|call| names.contains(&call.name.as_str())).cloned().collect()
    }

    /// Waits until there are `count` calls with this name, and returns the body of the last one.
    pub(crate) async fn heard(&self, name: &str, count: usize) -> Value {
        self.until(|calls| calls.iter().filter(|call| call.name == name).count() >= count).await;
        self.calls(name)[count - 1].body.clone()
    }

    /// Waits until there was no call with this name for this long.
    pub(crate) async fn until_quiet(&self, name: &str, pause: Duration) {
        loop {
            let count = self.calls(name).len();
            let next = self.until(|calls| calls.iter().filter(|call| call.name == name).count() > count);
            if tokio::time::timeout(pause, next).await.is_err() {
                return;
            }
        }
    }

    pub(crate) async fn until(&self, condition: impl Fn(&[RecordedCall]) -> bool) {
        let mut moved = self.moved.subscribe();
        let met = tokio::time::timeout(Duration::from_secs(20), async {
            while !condition(&self.state.lock().unwrap().calls) {
                moved.changed().await.unwrap();
            }
        });
        if met.await.is_err() {
            panic!("the hub timed out waiting; it received {:#?}", self.state.lock().unwrap().calls);
        }
    }
}

async fn answer(State(hub): State<FakeHub>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let path = parts.uri.path().to_owned();
    let name = if parts.method == Method::PUT { "upload" } else { path.rsplit('/').next().unwrap() };
    let name = if parts.method == Method::GET { format!("get {name}") } else { name.to_owned() };
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
    let refused = hub.change(|hub| {
        let scripted = hub.scripts.iter().position(|(end, _, _)| path.ends_with(end.as_str()));
        let refusal = match scripted {
            Some(index) => Some(hub.scripts.remove(index)).map(|(_, status, body)| (status, body)),
            None => hub.mood.clone(),
        };
        let seen = if refusal.is_some() { format!("refused {name}") } else { name.clone() };
        hub.calls.push(RecordedCall { name: seen, path: path.clone(), body });
        refusal
    });
    if let Some((status, body)) = refused {
        return reply(status, body);
    }
    match name.as_str() {
        "heartbeat" => {
            let cancelled = hub.change(|hub| std::mem::take(&mut hub.cancelled));
            reply(
                200,
                json!({"status": "online", "runtime_id": "rtm_00000000000000000000000000000002",
                    "server_time": hub.now(), "cancelled": cancelled}),
            )
        }
        "pull" => pull(&hub).await,
        "progress" => reply(200, json!({"status": "running"})),
        "complete" | "fail" => {
            let status = if name == "complete" { "completed" } else { "failed" };
            reply(200, json!({"task_run_id": path.rsplit('/').nth(1), "status": status}))
        }
        "release" => reply(200, json!({})),
        "get task-runs" => {
            let runs = hub.change(|hub| hub.running.clone());
            reply(200, json!({"task_runs": runs, "next_cursor": null}))
        }
        "get events" if parts.headers.get(header::ACCEPT).is_some_and(|accept| accept == "text/event-stream") => {
            events(&hub)
        }
        "get events" => {
            let after: usize = parts.uri.query().unwrap().trim_start_matches("after=").parse().unwrap();
            let events = hub.change(|hub| hub.events.clone());
            let rest = &events[after.min(events.len())..];
            reply(200, json!({"events": rest, "next": events.len().max(after), "status": "running"}))
        }
        "upload" => reply(
            201,
            json!({"artifact_id": "art_00000000000000000000000000000009",
                "workspace_id": "wsp_00000000000000000000000000000007", "name": "n", "media_type": "m", "size": 1,
                "blake3": "", "produced_by": null, "created_at": "2026-01-01T00:00:00.000Z"}),
        ),
        other => {
            let runs = hub.change(|hub| hub.running.clone());
            match runs.into_iter().find(|run| other.strip_prefix("get ") == run["task_run_id"].as_str()) {
                Some(run) => reply(200, run),
                None => reply(404, error("no_such_path", other)),
            }
        }
    }
}

async fn pull(hub: &FakeHub) -> Response {
    let mut moved = hub.moved.subscribe();
    let run = tokio::time::timeout(Duration::from_millis(300), async {
        loop {
            let run = hub.state.lock().unwrap().queue.pop_front();
            if let Some(run) = run {
                return run;
            }
            moved.changed().await.unwrap();
        }
    });
    reply(200, json!({"task_run": run.await.ok()}))
}

fn events(hub: &FakeHub) -> Response {
    let start = (hub.clone(), hub.moved.subscribe(), 0);
    let stream = futures_util::stream::unfold(start, |(hub, mut moved, seen)| async move {
        loop {
            if hub.state.lock().unwrap().mood.is_some() {
                return None;
            }
            let next = hub.state.lock().unwrap().events.get(seen).cloned();
            if let Some(event) = next {
                let text = format!("id: {}\ndata: {event}\n\n", seen + 1);
                return Some((Ok::<_, std::io::Error>(Bytes::from(text)), (hub, moved, seen + 1)));
            }
            moved.changed().await.unwrap();
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(stream)).into_response()
}

fn reply(status: u16, body: Value) -> Response {
    (StatusCode::from_u16(status).unwrap(), [(header::CONTENT_TYPE, "application/json")], body.to_string())
        .into_response()
}
