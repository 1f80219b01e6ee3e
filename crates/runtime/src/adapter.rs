//! The runtime's side of the adapter's HTTP contract: health, run-task as a stream or as plain JSON, cancel.

use std::time::Duration;

use attache_client::sse::SseParser;
use attache_delegation::collaborator::RemoteWalls;
use attache_protocol::{
    Json, RunId, Secret,
    json::Members,
    wire::{
        adapter::{
            AdapterHealth, AdapterInputAnswer, AdapterInputRequest, AdapterPermissionDecision,
            AdapterPermissionRequest, RunTask, TaskReply, WallsProof, event,
        },
        awcp::{SandboxProfile, SandboxProof},
        host_session::{AdapterSessions, HostSession, MAX_SESSIONS},
        run::SandboxLimit,
    },
};
use reqwest::{
    Client, RequestBuilder, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use tokio::sync::watch;

use crate::{Error, progress::ProgressItem};

/// An adapter's address and secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// For example `http://127.0.0.1:7801`.
    pub(crate) url: String,
    pub(crate) secret: Option<Secret<String>>,
}

/// A client of the adapter. A supervised adapter's address changes when it restarts.
#[derive(Debug, Clone)]
pub(crate) struct AdapterClient {
    client: Client,
    endpoint: watch::Receiver<Option<Endpoint>>,
}

/// Why a call to the adapter failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdapterCallError {
    /// The adapter never saw the request.
    NotSent(String),
    /// The connection broke; the adapter may have seen the request.
    Broken(String),
    /// Another task is executing.
    Busy,
    /// The task failed, reported with an error status.
    Failed(TaskReply),
    Refused {
        status: u16,
        message: String,
    },
    Invalid(String),
}

/// The response to one `POST /run-task`, as it arrives.
#[derive(Debug)]
pub(crate) struct RunTaskResponse {
    response: Response,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stream {
        parser: SseParser,
        /// Replaces ids that the adapter doesn't send.
        count: u64,
    },
    Json,
}

#[derive(Debug)]
pub(crate) enum AdapterEvent {
    Progress { seq: u64, piece: ProgressItem },
    Question { seq: u64, question: AdapterQuestion },
    Result(TaskReply),
}

/// A question that the adapter needs answered to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdapterQuestion {
    Permission(AdapterPermissionRequest),
    Input(AdapterInputRequest),
}

/// Error responses have the hub's form, or are the failed reply of a task.
#[derive(Deserialize)]
struct AdapterErrorBody {
    error: AdapterErrorDetail,
}

#[derive(Deserialize)]
struct AdapterErrorDetail {
    #[serde(default)]
    message: String,
}

/// The size limit of a result. Anything larger belongs in an artifact.
const MAX_REPLY: usize = 32 << 20;
const ADAPTER_CALL_TIMEOUT: Duration = Duration::from_secs(5);

// === impl AdapterClient ===

impl AdapterClient {
    pub(crate) fn new(endpoint: watch::Receiver<Option<Endpoint>>) -> Result<Self, Error> {
        let client = Client::builder()
            .connect_timeout(ADAPTER_CALL_TIMEOUT)
            // The adapter's secret must not be sent anywhere else.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(15))
            .tls_certs_only([])
            .build()
            .map_err(|error| Error::Adapter { program: "http".to_owned(), reason: error.to_string() })?;
        Ok(Self { client, endpoint })
    }

    pub(crate) async fn health(&self) -> Result<AdapterHealth, AdapterCallError> {
        let request = self.request(|client, url| client.get(format!("{url}/health")))?;
        let mut response = send(request.timeout(ADAPTER_CALL_TIMEOUT)).await?;
        let status = response.status().as_u16();
        let body = read(&mut response).await?;
        if status != 200 {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| AdapterCallError::Invalid(format!("GET /health: {error}")))
    }

    /// The sessions that its agent keeps for the working folder. None if it doesn't say.
    pub(crate) async fn sessions(&self) -> Vec<HostSession> {
        let listed = async {
            let request = self.request(|client, url| client.get(format!("{url}/sessions")))?;
            let mut response = send(request.timeout(ADAPTER_CALL_TIMEOUT)).await?;
            let body = read(&mut response).await?;
            // Adapters that only implement the two basic calls answer with "not found".
            Ok::<_, AdapterCallError>(serde_json::from_slice::<AdapterSessions>(&body).unwrap_or_default().sessions)
        };
        let mut sessions = listed.await.unwrap_or_default();
        sessions.retain(HostSession::is_plain);
        sessions.truncate(MAX_SESSIONS);
        sessions
    }

    /// The limits that it currently enforces. Empty if it doesn't say.
    pub(crate) async fn enforces(&self) -> Vec<String> {
        self.health().await.map(|health| health.enforces).unwrap_or_default()
    }

    /// The walls that it can put around a task. None if it doesn't say.
    pub(crate) async fn walls(&self) -> RemoteWalls {
        match self.health().await.ok().and_then(|health| health.walls) {
            Some(WallsProof { limits, made_of, proved_at }) => RemoteWalls {
                available: SandboxProfile::of(&SandboxLimit::known(limits.iter().map(String::as_str))),
                proof: Some(SandboxProof { made_of, proved_at }),
            },
            None => RemoteWalls::default(),
        }
    }

    /// Starts a task, or joins it if it is already executing. Events up to `after` are skipped if the adapter supports
    /// that.
    pub(crate) async fn run_task(&self, task: &RunTask, after: u64) -> Result<RunTaskResponse, AdapterCallError> {
        let body = serde_json::to_vec(task).expect("a task serialises to JSON");
        let mut request = self
            .request(|client, url| client.post(format!("{url}/run-task")))?
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream, application/json;q=0.5")
            .body(body);
        if after > 0 {
            request = request.header("last-event-id", after);
        }
        let mut response = send(request).await?;
        let status = response.status();
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() && media_type.starts_with("text/event-stream") {
            let kind = Kind::Stream { parser: SseParser::new(MAX_REPLY), count: 0 };
            return Ok(RunTaskResponse { response, kind });
        }
        if status.is_success() {
            return Ok(RunTaskResponse { response, kind: Kind::Json });
        }
        let body = read(&mut response).await?;
        Err(match serde_json::from_slice::<TaskReply>(&body) {
            Ok(reply) if !reply.success => AdapterCallError::Failed(reply),
            _ => refused(status.as_u16(), &body),
        })
    }

    /// The events of a run that the adapter knows, from the first one. Never starts the run.
    pub(crate) async fn events(&self, run: RunId) -> Result<RunTaskResponse, AdapterCallError> {
        let request = self.request(|client, url| client.get(format!("{url}/run-task/{run}/events")))?;
        let mut response = send(request.header(ACCEPT, "text/event-stream")).await?;
        let status = response.status();
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() && media_type.starts_with("text/event-stream") {
            return Ok(RunTaskResponse {
                response,
                kind: Kind::Stream { parser: SseParser::new(MAX_REPLY), count: 0 },
            });
        }
        // Adapters without this call answer with "not found".
        Err(refused(status.as_u16(), &read(&mut response).await?))
    }

    /// Stops a run and returns its outcome, if the adapter still knows it.
    pub(crate) async fn cancel(&self, run: RunId) -> Result<Option<TaskReply>, AdapterCallError> {
        let request = self.request(|client, url| client.post(format!("{url}/run-task/{run}/cancel")))?;
        let mut response = send(request.timeout(Duration::from_secs(30))).await?;
        let status = response.status().as_u16();
        let body = read(&mut response).await?;
        // Adapters that only implement the two basic calls answer with "not found".
        Ok(if status == 200 { serde_json::from_slice(&body).ok() } else { None })
    }

    /// Delivers the decision on a permission request.
    pub(crate) async fn decide(
        &self,
        run: RunId,
        id: &str,
        given: &AdapterPermissionDecision,
    ) -> Result<(), AdapterCallError> {
        self.answer(&["run-task", &run.to_string(), "permission", id], &Json::of(given)).await
    }

    /// Delivers input from the caller.
    pub(crate) async fn send_input(&self, run: RunId, answer: &AdapterInputAnswer) -> Result<(), AdapterCallError> {
        self.answer(&["run-task", &run.to_string(), "input"], &Json::of(answer)).await
    }

    async fn answer(&self, path: &[&str], body: &Json) -> Result<(), AdapterCallError> {
        let request = self.request(|client, url| {
            // The id comes from the adapter and can contain anything.
            let url = reqwest::Url::parse(url).ok().and_then(|mut url| {
                url.path_segments_mut().ok()?.pop_if_empty().extend(path);
                Some(url)
            });
            client.post(url.map_or_else(String::new, String::from))
        })?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body.get().to_owned());
        let mut response = send(request.timeout(ADAPTER_CALL_TIMEOUT)).await?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(());
        }
        Err(refused(status, &read(&mut response).await?))
    }

    fn request(&self, build: impl FnOnce(&Client, &str) -> RequestBuilder) -> Result<RequestBuilder, AdapterCallError> {
        let endpoint = self.endpoint.borrow().clone();
        let Some(Endpoint { url, secret }) = endpoint else {
            return Err(AdapterCallError::NotSent("the adapter has not started".to_owned()));
        };
        let request = build(&self.client, url.trim_end_matches('/'));
        Ok(match secret {
            Some(secret) => request.bearer_auth(secret.expose()),
            None => request,
        })
    }
}

async fn send(request: RequestBuilder) -> Result<Response, AdapterCallError> {
    request.send().await.map_err(|error| {
        let reason = cause(&error);
        if error.is_connect() || error.is_builder() {
            AdapterCallError::NotSent(reason)
        } else {
            AdapterCallError::Broken(reason)
        }
    })
}

async fn read(response: &mut Response) -> Result<Vec<u8>, AdapterCallError> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| AdapterCallError::Broken(cause(&error)))? {
        if body.len() + part.len() > MAX_REPLY {
            return Err(AdapterCallError::Invalid(format!("the reply is larger than {MAX_REPLY} bytes")));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

fn refused(status: u16, body: &[u8]) -> AdapterCallError {
    if status == 409 {
        return AdapterCallError::Busy;
    }
    let message = match serde_json::from_slice::<AdapterErrorBody>(body) {
        Ok(body) if !body.error.message.is_empty() => body.error.message,
        _ => format!("status {status}"),
    };
    AdapterCallError::Refused { status, message }
}

fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

// === impl RunTaskResponse ===

impl RunTaskResponse {
    /// The next event. The result is the last one. An end without a result is a broken connection.
    pub(crate) async fn next(&mut self) -> Result<AdapterEvent, AdapterCallError> {
        let Kind::Stream { parser, count } = &mut self.kind else {
            return parse(&read(&mut self.response).await?).map(AdapterEvent::Result);
        };
        loop {
            while let Some(message) = parser.pop() {
                *count += 1;
                if message.event == event::RESULT {
                    return parse(message.data.as_bytes()).map(AdapterEvent::Result);
                }
                let seq = message.id.parse().unwrap_or(*count);
                if let Some(question) = AdapterQuestion::read(&message.event, &message.data) {
                    let question = question.map_err(|error| {
                        AdapterCallError::Invalid(format!("invalid question from the adapter ({error})"))
                    })?;
                    return Ok(AdapterEvent::Question { seq, question });
                }
                match ProgressItem::read(&message.event, &message.data) {
                    Some(piece) => return Ok(AdapterEvent::Progress { seq, piece }),
                    None => tracing::debug!(event = %message.event, "ignored an unknown event of the adapter"),
                }
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => parser.push(&bytes).map_err(|error| AdapterCallError::Invalid(error.to_string()))?,
                Ok(None) => return Err(AdapterCallError::Broken("the stream ended without a result".to_owned())),
                Err(error) => return Err(AdapterCallError::Broken(cause(&error))),
            }
        }
    }
}

// === impl AdapterQuestion ===

impl AdapterQuestion {
    /// `None` if the event isn't a question.
    fn read(name: &str, data: &str) -> Option<serde_json::Result<Self>> {
        match name {
            event::PERMISSION => Some(serde_json::from_str(data).map(Self::Permission)),
            event::INPUT_REQUIRED => Some(serde_json::from_str(data).map(Self::Input)),
            _ => None,
        }
    }
}

fn parse(body: &[u8]) -> Result<TaskReply, AdapterCallError> {
    let reply: TaskReply = serde_json::from_slice(body)
        .map_err(|error| AdapterCallError::Invalid(format!("invalid reply from the adapter ({error})")))?;
    match (reply.success, &reply.output) {
        (true, None) => Err(AdapterCallError::Invalid("the reply reports success but has no `output`".to_owned())),
        (true, Some(output)) if !output.is_object() => {
            Err(AdapterCallError::Invalid("the reply's `output` is not an object like {\"text\":\"…\"}".to_owned()))
        }
        _ => Ok(reply),
    }
}

/// A number, string or object member of a JSON object, verbatim.
pub(crate) fn member(json: &Json, name: &str) -> Option<Json> {
    let members: Members = json.parse().ok()?;
    members.0.into_iter().find(|(key, value)| key == name && value.get() != "null").map(|(_, value)| value)
}
