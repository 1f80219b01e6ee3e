//! A small A2A agent whose misbehaviour a test decides: over JSON-RPC, in 1.0 or 0.3, without streams.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use attache_a2a_wire::{
    A2aRole, Fault, Message, Method, Part, PushConfig, RpcRequest, SendMessage, SendMessageResponse, Task, TaskList,
    TaskState, TaskStatus, v03,
};
use attache_protocol::{Json, json::Members};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};

#[derive(Clone)]
pub(super) struct ScriptedPeer {
    pub(super) url: String,
    version: &'static str,
    state: Arc<Mutex<ScriptedPeerState>>,
}

#[derive(Default)]
struct ScriptedPeerState {
    tasks: BTreeMap<String, Task>,
    sent: Vec<Message>,
    description: String,
    /// In place of the usual one; `{url}` is the script's own.
    card: Option<String>,
    /// How often its card was read, and how often it was said to be the same.
    reads: (usize, usize),
    /// The keys that came with what was sent.
    keys: Vec<Option<String>>,
    /// Where it was asked to tell what happens.
    pushes: Vec<PushConfig>,
    mood: PeerBehavior,
}

/// How it behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PeerBehavior {
    #[default]
    Good,
    /// It answers nothing.
    Down,
    /// It does what it is sent, and the answer is lost.
    LosesReplies,
    /// It gives its tasks ids that are longer than a database can index.
    Verbose,
    /// It knows no task.
    Forgets,
    /// It does what it is sent, and answers as some servers really do: no zone, no context, no ids.
    Sloppy,
    /// It does what it is sent, and answers with something that is no A2A.
    Mumbles,
    /// It does what it is sent, and answers with status 500.
    Stumbles,
}

impl ScriptedPeer {
    pub(super) async fn start(version: &'static str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let script = Self { url, version, state: Arc::default() };
        let router = Router::new().fallback(answer).with_state(script.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        script
    }

    pub(super) fn mood(&self, mood: PeerBehavior) {
        self.state.lock().unwrap().mood = mood;
    }

    /// Changes its card.
    pub(super) fn describe(&self, description: &str) {
        description.clone_into(&mut self.state.lock().unwrap().description);
    }

    pub(super) fn card(&self, text: &str) {
        self.state.lock().unwrap().card = Some(text.replace("{url}", &self.url));
    }

    pub(super) fn reads(&self) -> (usize, usize) {
        self.state.lock().unwrap().reads
    }

    pub(super) fn keys(&self) -> Vec<Option<String>> {
        self.state.lock().unwrap().keys.clone()
    }

    pub(super) fn pushes(&self) -> Vec<PushConfig> {
        self.state.lock().unwrap().pushes.clone()
    }

    /// What every task does from now on, and what is said of it.
    pub(super) fn tell(&self, state: TaskState, said: &str) {
        for task in self.state.lock().unwrap().tasks.values_mut() {
            let message = message(said, A2aRole::Agent, said);
            task.status = TaskStatus { state, message: Some(message), timestamp: None };
        }
    }

    pub(super) fn sent(&self) -> Vec<Message> {
        self.state.lock().unwrap().sent.clone()
    }

    pub(super) fn states(&self) -> Vec<TaskState> {
        self.state.lock().unwrap().tasks.values().map(|task| task.status.state).collect()
    }
}

fn message(id: &str, role: A2aRole, text: &str) -> Message {
    Message {
        message_id: id.to_owned(),
        role,
        parts: vec![Part::text(text)],
        context_id: None,
        task_id: None,
        metadata: None,
        extensions: vec![],
        reference_task_ids: vec![],
    }
}

async fn answer(State(script): State<ScriptedPeer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let header = |name: &str| parts.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let (path, known, key) = (parts.uri.path().to_owned(), header("if-none-match"), header("authorization"));
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut inner = script.state.lock().unwrap();
    if inner.mood == PeerBehavior::Down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    match path.as_str() {
        "/.well-known/agent-card.json" => {
            let (url, description) = (&script.url, &inner.description);
            let card = match script.version {
                "1.0" => format!(
                    r#"{{"name":"script","description":"{description}","supportedInterfaces":[{{"url":"{url}/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}}]}}"#
                ),
                _ => format!(
                    r#"{{"name":"script","description":"{description}","url":"{url}/rpc","protocolVersion":"0.3.0"}}"#
                ),
            };
            let card = inner.card.clone().unwrap_or(card);
            let etag = format!("\"{}\"", blake3::hash(card.as_bytes()).to_hex());
            if known.as_ref() == Some(&etag) {
                inner.reads.1 += 1;
                return StatusCode::NOT_MODIFIED.into_response();
            }
            inner.reads.0 += 1;
            ([("etag", etag)], card).into_response()
        }
        "/rpc" => {
            inner.keys.push(key);
            rpc(script.version, &mut inner, &body)
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn rpc(version: &str, inner: &mut ScriptedPeerState, body: &Bytes) -> Response {
    let request: RpcRequest = serde_json::from_slice(body).unwrap();
    let is_new = version == "1.0";
    let method = if is_new { Method::from_name(&request.method) } else { Method::from_old_name(&request.method) };
    let params = request.params.unwrap();
    let task = |task: Task| if is_new { Json::of(&task) } else { Json::of(&v03::TaskV03::from(task)) };
    let result = match method.unwrap() {
        Method::SendMessage => {
            let sent: SendMessage =
                if is_new { params.parse().unwrap() } else { params.parse::<v03::SendParamsV03>().unwrap().into() };
            let made = begin(inner, sent);
            if inner.mood == PeerBehavior::LosesReplies {
                let broken = futures_util::stream::iter([Err::<Bytes, _>(std::io::Error::other("lost"))]);
                return Body::from_stream(broken).into_response();
            }
            match inner.mood {
                PeerBehavior::Stumbles => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
                PeerBehavior::Mumbles => Ok(Json::from_text(r#"{"task":{"id":7}}"#).unwrap()),
                PeerBehavior::Sloppy => Ok(sloppy(is_new, &made.id)),
                PeerBehavior::Good
                | PeerBehavior::Down
                | PeerBehavior::LosesReplies
                | PeerBehavior::Verbose
                | PeerBehavior::Forgets => {
                    Ok(if is_new { Json::of(&SendMessageResponse::Task(made)) } else { task(made) })
                }
            }
        }
        Method::GetTask => find(inner, &params).map(task),
        Method::CancelTask => find(inner, &params).map(|mut found| {
            found.status.state = TaskState::TaskStateCanceled;
            inner.tasks.insert(found.id.clone(), found.clone());
            task(found)
        }),
        Method::ListTasks => {
            let tasks: Vec<Task> =
                if inner.mood == PeerBehavior::Forgets { vec![] } else { inner.tasks.values().cloned().collect() };
            let total_size = i32::try_from(tasks.len()).unwrap();
            Ok(Json::of(&TaskList { tasks, next_page_token: String::new(), page_size: 100, total_size }))
        }
        _ => Err(Fault::UnsupportedOperation),
    };
    let id = request.id.unwrap();
    match result {
        Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.get(), result.get()),
        Err(fault) => {
            format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":"no"}}}}"#, id.get(), fault.rpc_code())
        }
    }
    .into_response()
}

fn begin(inner: &mut ScriptedPeerState, sent: SendMessage) -> Task {
    inner.sent.push(sent.message.clone());
    inner.pushes.extend(sent.configuration.and_then(|given| given.task_push_notification_config));
    if let Some(known) = sent.message.task_id.as_ref().and_then(|id| inner.tasks.get(id)) {
        return known.clone();
    }
    let more = if inner.mood == PeerBehavior::Verbose { 20_000 } else { 0 };
    let id = format!("theirs-{}{}", inner.sent.len(), "x".repeat(more));
    let status = TaskStatus { state: TaskState::TaskStateWorking, message: None, timestamp: None };
    let history = Some(vec![sent.message]);
    let task = Task { id, context_id: "ctx".to_owned(), status, artifacts: None, history, metadata: None };
    inner.tasks.insert(task.id.clone(), task.clone());
    task
}

fn find(inner: &ScriptedPeerState, params: &Json) -> Result<Task, Fault> {
    let id = params.parse::<Members>().unwrap().text("id").unwrap();
    let found = inner.tasks.get(&id).filter(|_| inner.mood != PeerBehavior::Forgets);
    found.cloned().ok_or(Fault::TaskNotFound)
}

/// Done at once, in the words of servers that were seen.
fn sloppy(is_new: bool, id: &str) -> Json {
    let text = if is_new {
        format!(
            r#"{{"task":{{"id":"{id}","status":{{"state":"TASK_STATE_COMPLETED","timestamp":"2026-11-16T09:27:03.123456"}},
                "artifacts":[{{"parts":[{{"text":"it is done"}}]}}]}}}}"#
        )
    } else {
        format!(
            r#"{{"id":"{id}","status":{{"state":"completed","timestamp":"2026-11-16T09:27:03.123456",
                "message":{{"role":"agent","parts":[{{"type":"text","text":"bye"}}]}}}},
                "artifacts":[{{"parts":[{{"type":"text","text":"it is done"}}]}}]}}"#
        )
    };
    Json::from_text(text).unwrap()
}
