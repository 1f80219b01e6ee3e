//! A small A2A server on loopback: 1.0 over JSON-RPC and HTTP+JSON, 0.3 over JSON-RPC. It remembers its tasks and what it
//! was asked.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use attache_a2a_wire::{
    A2aRole, Artifact, ArtifactUpdate, ErrorInfo, Fault, Message, Method, Part, PartContent, PushConfig, RpcRequest,
    SendMessage, SendMessageResponse, StatusUpdate, StreamResponse, Task, TaskList, TaskState, TaskStatus, v03,
};
use attache_client::egress::{EgressGuard, EgressPolicy, EgressRule};
use attache_protocol::{Json, json::Members};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};

#[derive(Clone)]
pub(crate) struct PeerServer {
    pub(crate) origin: String,
    world: Arc<Mutex<PeerServerState>>,
}

#[derive(Default)]
struct PeerServerState {
    tasks: BTreeMap<String, Task>,
    configs: BTreeMap<String, PushConfig>,
    seen: Vec<String>,
    /// What each path of a card answers.
    files: BTreeMap<String, String>,
    next: usize,
}

enum PeerAnswer {
    One(Json, AnswerShape),
    Stream(Vec<StreamResponse>),
}

/// What 0.3 makes of an answer depends on what it is.
enum AnswerShape {
    Sent,
    Task,
    Config,
    Nothing,
    Plain,
}

// === impl PeerServer ===

impl PeerServer {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { origin, world: Arc::default() };
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    pub(crate) fn guard(&self) -> EgressGuard {
        EgressGuard::new(EgressPolicy { allow: vec!["127.0.0.1".parse::<EgressRule>().unwrap()] })
    }

    /// Lets a path answer with a text; `{origin}` in it becomes the server's.
    pub(crate) fn serve(&self, path: &str, text: &str) {
        let text = text.replace("{origin}", &self.origin);
        self.world.lock().unwrap().files.insert(path.to_owned(), text);
    }

    /// `METHOD path [headers that matter]`, in order.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.world.lock().unwrap().seen)
    }
}

async fn answer(State(server): State<PeerServer>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let target = parts.uri.path_and_query().unwrap().as_str().to_owned();
    let mut line = format!("{} {target}", parts.method);
    for name in ["a2a-version", "a2a-extensions", "x-a2a-extensions", "traceparent", "authorization", "x-key"] {
        if let Some(value) = parts.headers.get(name) {
            line.push_str(&format!(" {name}={}", value.to_str().unwrap()));
        }
    }
    let path = parts.uri.path();
    let mut world = server.world.lock().unwrap();
    world.seen.push(line);
    if let Some(file) = world.files.get(path) {
        return file.clone().into_response();
    }
    let query: BTreeMap<String, String> = parts.uri.query().map_or_else(BTreeMap::new, |query| {
        let pair = |pair: &str| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        query.split('&').filter_map(pair).collect()
    });
    match path {
        "/rpc" => rpc(&mut world, &body, &parts.headers),
        "/old" => old(&mut world, &body),
        "/denied" => (StatusCode::UNAUTHORIZED, "who are you").into_response(),
        "/broken" => (StatusCode::BAD_GATEWAY, "<html>").into_response(),
        _ => match path.strip_prefix("/rest/acme") {
            Some(path) => rest(&mut world, parts.method.as_str(), path, &query, &body),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

fn rpc(world: &mut PeerServerState, body: &Bytes, headers: &HeaderMap) -> Response {
    let request: RpcRequest = serde_json::from_slice(body).unwrap();
    let id = request.id.unwrap();
    assert_eq!(headers["a2a-version"], "1.0");
    let params = request.params.unwrap();
    let said = operate(world, Method::from_name(&request.method).unwrap(), &params);
    let frame = |result: &Json| format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.get(), result.get());
    match said {
        Ok(PeerAnswer::One(result, _)) => json(200, frame(&result)),
        Ok(PeerAnswer::Stream(events)) => sse(events.iter().map(|event| frame(&Json::of(event)))),
        Err(fault) => {
            let (code, info) = (fault.rpc_code(), Json::of(&[ErrorInfo::of(fault)]));
            let error = format!(r#"{{"code":{code},"message":"no","data":{}}}"#, info.get());
            json(200, format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.get()))
        }
    }
}

fn old(world: &mut PeerServerState, body: &Bytes) -> Response {
    let request: RpcRequest = serde_json::from_slice(body).unwrap();
    let id = request.id.unwrap();
    let params = request.params.unwrap();
    let method = Method::from_old_name(&request.method).unwrap();
    let params = match method {
        Method::SendMessage | Method::SendStreamingMessage => {
            Json::of(&SendMessage::from(params.parse::<v03::SendParamsV03>().unwrap()))
        }
        Method::CreatePushConfig => Json::of(&PushConfig::from(params.parse::<v03::TaskPushConfigV03>().unwrap())),
        Method::DeletePushConfig => {
            let old: v03::DeletePushConfigV03 = params.parse().unwrap();
            Json::of(&serde_json::json!({"taskId": old.id, "id": old.push_notification_config_id}))
        }
        _ => params,
    };
    let frame = |result: &Json| format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id.get(), result.get());
    match operate(world, method, &params) {
        Ok(PeerAnswer::One(result, shape)) => {
            let result = match shape {
                AnswerShape::Sent => match result.parse().unwrap() {
                    SendMessageResponse::Task(task) => Json::of(&v03::TaskV03::from(task)),
                    SendMessageResponse::Message(message) => Json::of(&v03::MessageV03::from(message)),
                },
                AnswerShape::Task => Json::of(&v03::TaskV03::from(result.parse::<Task>().unwrap())),
                AnswerShape::Config => {
                    let config: PushConfig = result.parse().unwrap();
                    let task_id = config.task_id.clone().unwrap();
                    Json::of(&v03::TaskPushConfigV03 { task_id, push_notification_config: config.into() })
                }
                AnswerShape::Nothing => Json::of(&()),
                AnswerShape::Plain => result,
            };
            json(200, frame(&result))
        }
        Ok(PeerAnswer::Stream(events)) => {
            sse(events.into_iter().map(|event| frame(&Json::of(&v03::StreamResponseV03::from(event)))))
        }
        Err(fault) => {
            let error = format!(r#"{{"code":{},"message":"no","data":"free text"}}"#, fault.rpc_code());
            json(200, format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.get()))
        }
    }
}

/// Serves `:subscribe` with POST only, as the standard's text has it.
fn rest(
    world: &mut PeerServerState,
    verb: &str,
    path: &str,
    query: &BTreeMap<String, String>,
    body: &Bytes,
) -> Response {
    let body: Json = if body.is_empty() { Json::empty_object() } else { serde_json::from_slice(body).unwrap() };
    let parts: Vec<String> = path.trim_start_matches('/').split('/').map(|part| part.replace("%2F", "/")).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let with = |extra: &[(&str, &str)]| {
        let Members(mut members) = body.parse::<Members>().unwrap();
        members.extend(query.iter().map(|(name, value)| (name.clone(), Json::of(value))));
        members.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), Json::of(value))));
        Json::of(&Members(members))
    };
    let (method, params) = match (verb, &*parts) {
        ("POST", ["message:send"]) => (Method::SendMessage, body),
        ("POST", ["message:stream"]) => (Method::SendStreamingMessage, body),
        ("GET", ["tasks"]) => (Method::ListTasks, Json::empty_object()),
        ("GET", ["tasks", task]) if !task.contains(':') => (Method::GetTask, with(&[("id", task)])),
        ("POST", ["tasks", action]) => match action.split_once(':').unwrap() {
            (task, "cancel") => (Method::CancelTask, with(&[("id", task)])),
            (task, "subscribe") => (Method::SubscribeToTask, with(&[("id", task)])),
            _ => return StatusCode::NOT_FOUND.into_response(),
        },
        ("POST", ["tasks", task, "pushNotificationConfigs"]) => (Method::CreatePushConfig, with(&[("taskId", task)])),
        ("DELETE", ["tasks", task, "pushNotificationConfigs", id]) => {
            (Method::DeletePushConfig, with(&[("taskId", task), ("id", id)]))
        }
        _ => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
    };
    match operate(world, method, &params) {
        Ok(PeerAnswer::One(_, AnswerShape::Nothing)) => StatusCode::NO_CONTENT.into_response(),
        Ok(PeerAnswer::One(result, _)) => json(200, result.get().to_owned()),
        Ok(PeerAnswer::Stream(events)) => sse(events.iter().map(|event| Json::of(event).get().to_owned())),
        Err(fault) => {
            let (status, name, info) = (fault.http_status(), fault.grpc_status(), Json::of(&[ErrorInfo::of(fault)]));
            let text =
                format!(r#"{{"error":{{"code":{status},"status":"{name}","message":"no","details":{}}}}}"#, info.get());
            json(status, text)
        }
    }
}

fn operate(world: &mut PeerServerState, method: Method, params: &Json) -> Result<PeerAnswer, Fault> {
    let members: Members = params.parse().unwrap();
    let find = |world: &PeerServerState, name: &str| {
        let id = members.text(name).unwrap();
        world.tasks.get(&id).cloned().ok_or(Fault::TaskNotFound)
    };
    let said = match method {
        Method::SendMessage => match start(world, params.parse().unwrap())? {
            StreamResponse::Task(task) => {
                let task = finish(world, task);
                PeerAnswer::One(Json::of(&SendMessageResponse::Task(task)), AnswerShape::Sent)
            }
            StreamResponse::Message(message) => {
                PeerAnswer::One(Json::of(&SendMessageResponse::Message(message)), AnswerShape::Sent)
            }
            StreamResponse::StatusUpdate(_) | StreamResponse::ArtifactUpdate(_) => unreachable!(),
        },
        Method::SendStreamingMessage => match start(world, params.parse().unwrap())? {
            StreamResponse::Task(task) => {
                let done = finish(world, task.clone());
                PeerAnswer::Stream(std::iter::once(StreamResponse::Task(task)).chain(updates(&done)).collect())
            }
            other => PeerAnswer::Stream(vec![other]),
        },
        Method::GetTask => PeerAnswer::One(Json::of(&find(world, "id")?), AnswerShape::Task),
        Method::CancelTask => {
            let mut task = find(world, "id")?;
            if task.status.state.is_terminal() {
                return Err(Fault::TaskNotCancelable);
            }
            task.status.state = TaskState::TaskStateCanceled;
            world.tasks.insert(task.id.clone(), task.clone());
            PeerAnswer::One(Json::of(&task), AnswerShape::Task)
        }
        Method::SubscribeToTask => {
            let task = find(world, "id")?;
            if task.status.state.is_terminal() {
                return Err(Fault::UnsupportedOperation);
            }
            PeerAnswer::Stream(vec![StreamResponse::Task(task)])
        }
        Method::ListTasks => {
            let tasks: Vec<_> = world.tasks.values().cloned().collect();
            let total_size = i32::try_from(tasks.len()).unwrap();
            let list = TaskList { tasks, next_page_token: String::new(), page_size: 50, total_size };
            PeerAnswer::One(Json::of(&list), AnswerShape::Plain)
        }
        Method::CreatePushConfig => {
            find(world, "taskId")?;
            let config = PushConfig { id: Some("cfg-1".to_owned()), ..params.parse().unwrap() };
            world.configs.insert("cfg-1".to_owned(), config.clone());
            PeerAnswer::One(Json::of(&config), AnswerShape::Config)
        }
        Method::DeletePushConfig => {
            world.configs.remove(&members.text("id").unwrap()).ok_or(Fault::TaskNotFound)?;
            PeerAnswer::One(Json::empty_object(), AnswerShape::Nothing)
        }
        Method::GetPushConfig | Method::ListPushConfigs | Method::GetExtendedCard => {
            return Err(Fault::UnsupportedOperation);
        }
    };
    Ok(said)
}

fn start(world: &mut PeerServerState, request: SendMessage) -> Result<StreamResponse, Fault> {
    let SendMessage { message, .. } = request;
    if let PartContent::Text(text) = &message.parts[0].content
        && text == "answer"
    {
        let reply = Message { role: A2aRole::Agent, message_id: "reply".to_owned(), ..message };
        return Ok(StreamResponse::Message(reply));
    }
    if message.task_id.as_ref().is_some_and(|task| !world.tasks.contains_key(task)) {
        return Err(Fault::TaskNotFound);
    }
    world.next += 1;
    let status = TaskStatus { state: TaskState::TaskStateWorking, message: None, timestamp: None };
    let (id, context_id) = (format!("task/{}", world.next), "ctx".to_owned());
    let task = Task { id, context_id, status, artifacts: None, history: Some(vec![message]), metadata: None };
    world.tasks.insert(task.id.clone(), task.clone());
    Ok(StreamResponse::Task(task))
}

/// Everything but `wait` is done at once: what came goes back as an artifact.
fn finish(world: &mut PeerServerState, mut task: Task) -> Task {
    let parts = task.history.as_ref().unwrap()[0].parts.clone();
    if parts[0] != Part::text("wait") {
        let artifact = Artifact {
            artifact_id: "a".to_owned(),
            name: None,
            description: None,
            parts,
            metadata: None,
            extensions: vec![],
        };
        task.artifacts = Some(vec![artifact]);
        task.status.state = TaskState::TaskStateCompleted;
        world.tasks.insert(task.id.clone(), task.clone());
    }
    task
}

fn updates(task: &Task) -> Vec<StreamResponse> {
    let Some([artifact]) = task.artifacts.as_deref() else { return vec![] };
    let (task_id, context_id) = (task.id.clone(), task.context_id.clone());
    vec![
        StreamResponse::ArtifactUpdate(ArtifactUpdate {
            task_id: task_id.clone(),
            context_id: context_id.clone(),
            artifact: artifact.clone(),
            append: None,
            last_chunk: Some(true),
            metadata: None,
        }),
        StreamResponse::StatusUpdate(StatusUpdate { task_id, context_id, status: task.status.clone(), metadata: None }),
    ]
}

fn json(status: u16, text: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

fn sse(events: impl Iterator<Item = String>) -> Response {
    let text: String = events.map(|event| format!("data: {event}\n\n")).collect();
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from(format!(": hello\n\n{text}")))
        .into_response()
}
