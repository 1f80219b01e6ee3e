//! A small A2A 1.0 server (JSON-RPC only) whose one skill is to work in folders that others delegate to it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_a2a_wire::{
    A2aRole, Artifact, Message, Part, RpcError, RpcRequest, RpcResponse, Task, TaskState, TaskStatus,
};
use attache_delegation::collaborator::{
    AdvertisedLimits, BorrowedFolder, Collaborator, CollaboratorAuditEntry, CollaboratorAuditSink, CollaboratorPolicy,
    DelegationConsent, DelegatorMessageOutcome, RemoteWalls, WorkDone,
};
use attache_protocol::{
    Json,
    env::Env,
    rules::assignment::CollaboratorLimits,
    secret::SecretHash,
    wire::awcp::{self, AccessMode, AwcpError, AwcpErrorCode, EXTENSION, SandboxProfile, TransportChoice},
};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response as Answer},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};

/// A custom policy: everyone with the key, read-write, at most an hour, below one folder.
#[derive(Debug)]
pub(crate) struct OneFolderPolicy {
    pub(crate) root: PathBuf,
}

/// A custom audit that prints its entries.
#[derive(Debug)]
pub(crate) struct PrintingAudit;

#[derive(Clone)]
struct ExampleServer(Arc<ExampleServerState>);

struct ExampleServerState {
    role: Collaborator,
    url: String,
    key: SecretHash,
    env: Env,
    tasks: Mutex<BTreeMap<String, StoredTask>>,
}

#[derive(Clone)]
struct StoredTask {
    task: Task,
    delegation: String,
}

#[derive(Deserialize)]
struct SendMessageParams {
    message: Message,
}

#[derive(Deserialize)]
struct TaskIdArg {
    id: String,
}

#[derive(Serialize)]
struct SendMessageResult {
    task: Task,
}

const HOUR: Duration = Duration::from_secs(3600);
const CALLER: &str = "key:example";

pub(crate) fn router(role: Collaborator, url: &str, key: String, env: Env) -> Router {
    let key = SecretHash::of(&key);
    let inner = ExampleServerState { role, url: url.to_owned(), key, env, tasks: Mutex::default() };
    Router::new()
        .route("/.well-known/agent-card.json", get(card))
        .route("/", post(call))
        .with_state(ExampleServer(Arc::new(inner)))
}

/// Discovery: the card with the extension and its limits.
async fn card(State(server): State<ExampleServer>) -> Answer {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ExampleCard<'a> {
        name: &'a str,
        description: &'a str,
        version: &'a str,
        supported_interfaces: [ExampleInterface<'a>; 1],
        capabilities: ExampleCapabilities,
        default_input_modes: [&'a str; 1],
        default_output_modes: [&'a str; 1],
        skills: [ExampleSkill<'a>; 1],
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct ExampleInterface<'a> {
        url: &'a str,
        protocol_binding: &'a str,
        protocol_version: &'a str,
    }
    #[derive(Serialize)]
    struct ExampleCapabilities {
        extensions: Vec<attache_protocol::wire::runtime::DeclaredExtension>,
    }
    #[derive(Serialize)]
    struct ExampleSkill<'a> {
        id: &'a str,
        name: &'a str,
        description: &'a str,
        tags: [&'a str; 1],
    }
    let description = "Writes a summary into a folder that is delegated to it.";
    json(&ExampleCard {
        name: "summary",
        description,
        version: "1",
        supported_interfaces: [ExampleInterface {
            url: &server.0.url,
            protocol_binding: "JSONRPC",
            protocol_version: "1.0",
        }],
        capabilities: ExampleCapabilities { extensions: server.0.role.extension().into_iter().collect() },
        default_input_modes: ["application/json"],
        default_output_modes: ["application/json"],
        skills: [ExampleSkill { id: "summary", name: "Summary", description, tags: ["files"] }],
    })
}

async fn call(State(server): State<ExampleServer>, headers: HeaderMap, body: Bytes) -> Answer {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if !bearer.is_some_and(|key| server.0.key.matches(key)) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(request) = serde_json::from_slice::<RpcRequest>(&body) else {
        return reply(None, Err((-32700, "invalid JSON-RPC".to_owned())));
    };
    let result = server.answer(&request.method, request.params.as_ref()).await;
    reply(request.id, result)
}

// === impl ExampleServer ===

impl ExampleServer {
    async fn answer(&self, method: &str, params: Option<&Json>) -> Result<Json, (i32, String)> {
        fn read<T: serde::de::DeserializeOwned>(params: Option<&Json>) -> Result<T, (i32, String)> {
            let params = params.cloned().unwrap_or_else(Json::empty_object);
            params.parse().map_err(|error| (-32602, error.to_string()))
        }
        let missing = || (-32001, "no such task".to_owned());
        match method {
            "SendMessage" => {
                let SendMessageParams { message } = read(params)?;
                let awcp = awcp::AwcpMessage::among(&message.parts).map_err(|error| (-32602, error.to_string()))?;
                Ok(Json::of(&SendMessageResult { task: self.send(message.task_id, awcp).await.ok_or_else(missing)? }))
            }
            "GetTask" => {
                let TaskIdArg { id } = read(params)?;
                self.stored(&id).map(|stored| Json::of(&stored.task)).ok_or_else(missing)
            }
            "CancelTask" => {
                let TaskIdArg { id } = read(params)?;
                let delegation = self.stored(&id).ok_or_else(missing)?.delegation;
                let ended = AwcpError::new(&delegation, AwcpErrorCode::Cancelled, "the task was cancelled");
                let task = self.send(Some(id), awcp::AwcpMessage::Error(ended)).await;
                task.map(|task| Json::of(&task)).ok_or_else(missing)
            }
            _ => Err((-32601, "this server supports only SendMessage, GetTask and CancelTask".to_owned())),
        }
    }

    /// Handles one AWCP message and returns its task.
    async fn send(&self, id: Option<String>, message: awcp::AwcpMessage) -> Option<Task> {
        let id = match id {
            Some(id) => self.stored(&id).map(|_| id)?,
            None => self.begin(message.delegation()),
        };
        let role = self.0.role.clone();
        let outcome =
            tokio::task::spawn_blocking(move || role.handle_message(&message, CALLER, &RemoteWalls::default()))
                .await
                .ok()?;
        match outcome {
            DelegatorMessageOutcome::Reply(last) | DelegatorMessageOutcome::Ended(last) => self.show(&id, &last),
            DelegatorMessageOutcome::Begin(folder) => {
                self.set(&id, TaskState::TaskStateWorking, Vec::new());
                let (server, task) = (self.clone(), id.clone());
                tokio::spawn(async move {
                    let last = work(*folder).await;
                    server.show(&task, &last);
                });
            }
            DelegatorMessageOutcome::Underway(_) => {}
        }
        self.stored(&id).map(|stored| stored.task)
    }

    fn begin(&self, delegation: &str) -> String {
        let (id, context_id) = (self.0.env.uuid().to_string(), self.0.env.uuid().to_string());
        let status = TaskStatus { state: TaskState::TaskStateSubmitted, message: None, timestamp: None };
        let task = Task { id: id.clone(), context_id, status, artifacts: None, history: None, metadata: None };
        self.tasks().insert(id.clone(), StoredTask { task, delegation: delegation.to_owned() });
        id
    }

    /// Shows an AWCP message as the state of an A2A task.
    fn show(&self, id: &str, last: &awcp::AwcpMessage) {
        let state = match last {
            awcp::AwcpMessage::Accept(_) => TaskState::TaskStateInputRequired,
            awcp::AwcpMessage::Done(_) => TaskState::TaskStateCompleted,
            awcp::AwcpMessage::Error(error) => match error.code {
                AwcpErrorCode::Declined | AwcpErrorCode::DepMissing | AwcpErrorCode::MountpointDenied => {
                    TaskState::TaskStateRejected
                }
                AwcpErrorCode::Cancelled => TaskState::TaskStateCanceled,
                _ => TaskState::TaskStateFailed,
            },
            awcp::AwcpMessage::Invite(_) | awcp::AwcpMessage::Start(_) => return,
        };
        if let awcp::AwcpMessage::Done(done) = last
            && let Some(stored) = self.tasks().get_mut(id)
        {
            stored.task.artifacts = Some(vec![Artifact {
                artifact_id: "awcp".to_owned(),
                name: Some("awcp".to_owned()),
                description: None,
                parts: vec![last.part(), Part::text(done.final_summary.clone())],
                metadata: None,
                extensions: vec![EXTENSION.to_owned()],
            }]);
        }
        self.set(id, state, vec![last.part()]);
    }

    fn set(&self, id: &str, state: TaskState, parts: Vec<Part>) {
        let message = Message::new(self.0.env.uuid().to_string(), A2aRole::Agent, parts);
        if let Some(stored) = self.tasks().get_mut(id).filter(|stored| !stored.task.status.state.is_terminal()) {
            let message = (!message.parts.is_empty()).then(|| Message { task_id: Some(id.to_owned()), ..message });
            stored.task.status = TaskStatus { state, message, timestamp: Some(self.0.env.now()) };
        }
    }

    fn stored(&self, id: &str) -> Option<StoredTask> {
        self.tasks().get(id).cloned()
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, StoredTask>> {
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Mounts the folder, works in it and reports the result. Replace `summarise` with your own agent.
async fn work(mut folder: BorrowedFolder) -> awcp::AwcpMessage {
    if let Err(error) = folder.mount().await {
        return folder.fail(error).await;
    }
    let (place, prompt) = (folder.mount_point().to_owned(), folder.invite().task.prompt.clone());
    let agent = tokio::task::spawn_blocking(move || summarise(&place, &prompt));
    let worked = tokio::select! {
        worked = agent => worked.unwrap_or_else(|error| Err(io::Error::other(error))),
        end = folder.ended() => {
            let error = folder.error_of(&end);
            return folder.fail(error).await;
        }
    };
    match worked {
        Ok(final_summary) => {
            let highlights = vec!["SUMMARY.md".to_owned()];
            folder.done(WorkDone { final_summary, highlights, ..WorkDone::default() }).await
        }
        Err(error) => {
            let error = folder.error(AwcpErrorCode::TaskFailed, error.to_string());
            folder.fail(error).await
        }
    }
}

fn summarise(folder: &Path, prompt: &str) -> io::Result<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    fs::write(folder.join("SUMMARY.md"), format!("# {prompt}\n\n{}\n", names.join("\n")))?;
    Ok(format!("Listed {} entries in SUMMARY.md.", names.len()))
}

// === impl OneFolderPolicy ===

impl CollaboratorPolicy for OneFolderPolicy {
    fn consider(
        &self,
        _invite: &awcp::AwcpInvite,
        _caller: &str,
        _available: SandboxProfile,
    ) -> Result<DelegationConsent, AwcpError> {
        let limits = CollaboratorLimits {
            access_modes: vec![AccessMode::Ro, AccessMode::Rw],
            max_ttl: HOUR,
            wanted: SandboxProfile::NOTHING,
            available: SandboxProfile::NOTHING,
        };
        let transports = TransportChoice::ALL.to_vec();
        Ok(DelegationConsent { limits, mount_roots: self.roots(), requires_empty_dir: true, transports })
    }

    fn terms(&self) -> Option<AdvertisedLimits> {
        Some(AdvertisedLimits { max_ttl_seconds: HOUR.as_secs(), access_modes: vec![AccessMode::Ro, AccessMode::Rw] })
    }

    fn roots(&self) -> Vec<PathBuf> {
        vec![self.root.clone()]
    }
}

// === impl PrintingAudit ===

impl CollaboratorAuditSink for PrintingAudit {
    #[allow(clippy::print_stdout, reason = "an example prints what happens")]
    fn record(&self, entry: &CollaboratorAuditEntry<'_>) {
        println!("{} {} of {}: {}", entry.at, entry.delegation_id, entry.caller, entry.event);
    }
}

fn reply(id: Option<Json>, result: Result<Json, (i32, String)>) -> Answer {
    let (result, error) = match result {
        Ok(result) => (Some(result), None),
        Err((code, message)) => (None, Some(RpcError { code, message, data: None })),
    };
    json(&RpcResponse { jsonrpc: "2.0".to_owned(), id, result, error })
}

fn json(body: &impl Serialize) -> Answer {
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::HeaderName::from_static("a2a-extensions"), EXTENSION)];
    (headers, Json::of(body).get().to_owned()).into_response()
}
