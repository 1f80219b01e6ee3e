//! A scripted adapter: each run gets one scripted reply.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct FakeAdapter {
    state: Arc<Mutex<FakeAdapterState>>,
    moved: watch::Sender<u64>,
    pub(crate) url: String,
}

pub(crate) enum AdapterReply {
    /// A plain JSON adapter.
    Json(Value),
    /// A plain reply with exactly this text.
    Raw(String),
    /// Reports failures with an HTTP status.
    Status(u16, Value),
    Stream(Vec<(&'static str, Value)>),
    /// Streams, then stays silent until it is cancelled or finished.
    Hang(Vec<(&'static str, Value)>),
    /// Joins the hanging run: replays everything from the start, and keeps hanging.
    Join,
    /// Streams, then the connection breaks.
    Break(Vec<(&'static str, Value)>),
}

#[derive(Default)]
struct FakeAdapterState {
    scenes: Vec<AdapterReply>,
    tasks: Vec<Value>,
    secrets: Vec<Option<String>>,
    cancels: Vec<String>,
    /// The path and body of every answer to a question.
    answers: Vec<(String, Value)>,
    /// Every event of the hanging run, for those who join it.
    told: Vec<(&'static str, Value)>,
    running: Option<String>,
    /// What `cancel` answers for an ended run.
    remembered: Option<Value>,
    finished: Option<Value>,
    /// What the hanging run sends next.
    said: Vec<(&'static str, Value)>,
    /// It accepts no input from the caller.
    is_deaf: bool,
}

impl FakeAdapter {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let adapter = Self { state: Arc::default(), moved: watch::channel(0).0, url };
        let router = Router::new()
            .route("/health", get(health))
            .route("/run-task", post(run_task))
            .route("/run-task/{run}/cancel", post(cancel))
            .route("/run-task/{run}/permission/{id}", post(permission))
            .route("/run-task/{run}/input", post(input))
            .with_state(adapter.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        adapter
    }

    pub(crate) fn be_deaf(&self) {
        self.change(|stage| stage.is_deaf = true);
    }

    fn change<R>(&self, change: impl FnOnce(&mut FakeAdapterState) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.moved.send_modify(|count| *count += 1);
        result
    }

    pub(crate) fn play(&self, scene: AdapterReply) {
        self.change(|stage| stage.scenes.push(scene));
    }

    pub(crate) fn executes(&self, run: &str) {
        self.change(|stage| stage.running = Some(run.to_owned()));
    }

    pub(crate) fn remembers(&self, reply: Value) {
        self.change(|stage| stage.remembered = Some(reply));
    }

    /// Sends one more event in the hanging run.
    pub(crate) fn say(&self, name: &'static str, data: Value) {
        self.change(|stage| stage.said.push((name, data)));
    }

    /// Ends the hanging run.
    pub(crate) fn finish(&self, reply: Value) {
        self.change(|stage| stage.finished = Some(reply));
    }

    pub(crate) fn tasks(&self) -> Vec<Value> {
        self.state.lock().unwrap().tasks.clone()
    }

    pub(crate) fn secrets(&self) -> Vec<Option<String>> {
        self.state.lock().unwrap().secrets.clone()
    }

    pub(crate) async fn started(&self, count: usize) {
        self.until(|stage| stage.tasks.len() >= count).await;
    }

    pub(crate) async fn cancelled(&self) -> String {
        self.until(|stage| !stage.cancels.is_empty()).await;
        self.state.lock().unwrap().cancels[0].clone()
    }

    /// The answers to questions, once there are this many.
    pub(crate) async fn answers(&self, count: usize) -> Vec<(String, Value)> {
        self.until(|stage| stage.answers.len() >= count).await;
        self.state.lock().unwrap().answers.clone()
    }

    async fn until(&self, condition: impl Fn(&FakeAdapterState) -> bool) {
        let mut moved = self.moved.subscribe();
        let met = tokio::time::timeout(Duration::from_secs(20), async {
            while !condition(&self.state.lock().unwrap()) {
                moved.changed().await.unwrap();
            }
        });
        met.await.expect("the adapter timed out waiting");
    }
}

async fn health(State(adapter): State<FakeAdapter>) -> Json<Value> {
    Json(json!({"ok": true, "concurrency": 64, "running": adapter.state.lock().unwrap().running}))
}

async fn run_task(State(adapter): State<FakeAdapter>, headers: HeaderMap, Json(task): Json<Value>) -> Response {
    let secret = headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
    let run = task["task_run_id"].as_str().unwrap().to_owned();
    let scene = adapter.change(|stage| {
        stage.tasks.push(task);
        stage.secrets.push(secret);
        stage.scenes.remove(0)
    });
    match scene {
        AdapterReply::Json(reply) => Json(reply).into_response(),
        AdapterReply::Raw(reply) => ([(header::CONTENT_TYPE, "application/json")], reply).into_response(),
        AdapterReply::Status(status, reply) => (StatusCode::from_u16(status).unwrap(), Json(reply)).into_response(),
        AdapterReply::Stream(events) => stream(events.iter().map(frame).collect(), ReplyEnd::Close, adapter),
        AdapterReply::Break(events) => stream(events.iter().map(frame).collect(), ReplyEnd::Break, adapter),
        AdapterReply::Join => {
            let events = adapter.change(|stage| stage.told.clone());
            stream(events.iter().map(frame).collect(), ReplyEnd::Hang, adapter)
        }
        AdapterReply::Hang(events) => {
            adapter.change(|stage| {
                stage.running = Some(run);
                stage.told.clone_from(&events);
                stage.cancels.clear();
            });
            stream(events.iter().map(frame).collect(), ReplyEnd::Hang, adapter)
        }
    }
}

enum ReplyEnd {
    Close,
    Break,
    Hang,
    Done,
}

fn frame((name, data): &(&'static str, Value)) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn stream(frames: Vec<String>, end: ReplyEnd, adapter: FakeAdapter) -> Response {
    let start = (Some(frames.concat()), end, adapter);
    let body = futures_util::stream::unfold(start, |(frames, end, adapter)| async move {
        if let Some(frames) = frames {
            return Some((Ok(Bytes::from(frames)), (None, end, adapter)));
        }
        match end {
            ReplyEnd::Close | ReplyEnd::Done => None,
            ReplyEnd::Break => {
                tokio::task::yield_now().await;
                Some((Err(std::io::Error::other("broken")), (None, ReplyEnd::Done, adapter)))
            }
            ReplyEnd::Hang => {
                let roused = |stage: &FakeAdapterState| {
                    stage.finished.is_some() || !stage.cancels.is_empty() || !stage.said.is_empty()
                };
                adapter.until(roused).await;
                let said = adapter.change(|stage| {
                    let said = std::mem::take(&mut stage.said);
                    stage.told.extend(said.clone());
                    said
                });
                if !said.is_empty() {
                    let frames: String = said.iter().map(frame).collect();
                    return Some((Ok(Bytes::from(frames)), (None, ReplyEnd::Hang, adapter)));
                }
                let (reply, cancelled) = adapter.change(|stage| {
                    stage.running = None;
                    (stage.finished.take(), !stage.cancels.is_empty())
                });
                let reply = match reply {
                    Some(reply) => reply,
                    None if cancelled => return None,
                    // Another hanging run was faster.
                    None => return Some((Ok(Bytes::new()), (None, ReplyEnd::Hang, adapter))),
                };
                let frame = frame(&("result", reply));
                Some((Ok(Bytes::from(frame)), (None, ReplyEnd::Done, adapter)))
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}

async fn permission(
    State(adapter): State<FakeAdapter>,
    Path((_, id)): Path<(String, String)>,
    Json(body): Json<Value>,
) -> Json<Value> {
    adapter.change(|stage| stage.answers.push((format!("permission/{id}"), body)));
    Json(json!({}))
}

async fn input(State(adapter): State<FakeAdapter>, Json(body): Json<Value>) -> Response {
    let is_deaf = adapter.change(|stage| {
        stage.answers.push(("input".to_owned(), body));
        stage.is_deaf
    });
    if is_deaf { StatusCode::NOT_FOUND.into_response() } else { Json(json!({})).into_response() }
}

async fn cancel(State(adapter): State<FakeAdapter>, Path(run): Path<String>) -> Response {
    let remembered = adapter.change(|stage| {
        // Cancelling another run ends nothing here.
        if stage.running.as_ref().is_none_or(|running| *running == run) {
            stage.cancels.push(run);
        }
        stage.remembered.clone()
    });
    match remembered {
        Some(reply) => Json(reply).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
