//! The runtime's side of the adapter's HTTP contract: health, run-task as a stream or as plain JSON, cancel.

use std::time::Duration;

use attache_client::sse::Parser;
use attache_protocol::{
    Json, RunId, Secret,
    json::Members,
    wire::adapter::{Health, InputAsked, InputGiven, PermissionAsked, PermissionGiven, RunTask, TaskReply, event},
};
use reqwest::{
    Client, RequestBuilder, Response,
    header::{ACCEPT, CONTENT_TYPE},
};
use serde::Deserialize;
use tokio::sync::watch;

use crate::{Error, progress::Piece};

/// Where an adapter listens, and what it wants to hear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// For example `http://127.0.0.1:7801`.
    pub(crate) url: String,
    pub(crate) secret: Option<Secret<String>>,
}

/// A client of the adapter, wherever it is now: a supervised one moves when it is restarted.
#[derive(Debug, Clone)]
pub(crate) struct Adapter {
    client: Client,
    endpoint: watch::Receiver<Option<Endpoint>>,
}

/// Why a call to the adapter brought no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The adapter never saw the request.
    NotSent(String),
    /// The connection broke; the adapter may have seen the request.
    Broken(String),
    /// Another task executes.
    Busy,
    /// A failed task, told with an error status.
    Failed(TaskReply),
    Refused {
        status: u16,
        message: String,
    },
    Invalid(String),
}

/// The answer to one `POST /run-task`, as it comes.
#[derive(Debug)]
pub(crate) struct Session {
    response: Response,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Stream {
        parser: Parser,
        /// Stands in for ids that the adapter does not send.
        count: u64,
    },
    Json,
}

#[derive(Debug)]
pub(crate) enum Happening {
    Piece { seq: u64, piece: Piece },
    Asked { seq: u64, asked: Asked },
    Result(TaskReply),
}

/// What the adapter wants to know before it goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Permission(PermissionAsked),
    Input(InputAsked),
}

/// Error answers come in the hub's form, or as the failed reply of a task.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorDetail,
}

#[derive(Deserialize)]
struct ErrorDetail {
    #[serde(default)]
    message: String,
}

/// No result is larger; what is larger belongs into an artifact.
const LARGEST_REPLY: usize = 32 << 20;
const CALL_TIME: Duration = Duration::from_secs(5);

// === impl Adapter ===

impl Adapter {
    pub(crate) fn new(endpoint: watch::Receiver<Option<Endpoint>>) -> Result<Self, Error> {
        let client = Client::builder()
            .connect_timeout(CALL_TIME)
            // The adapter's secret goes to the adapter and nowhere else.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_secs(15))
            .tls_certs_only([])
            .build()
            .map_err(|error| Error::Adapter { program: "http".to_owned(), reason: error.to_string() })?;
        Ok(Self { client, endpoint })
    }

    pub(crate) async fn health(&self) -> Result<Health, Trouble> {
        let request = self.request(|client, url| client.get(format!("{url}/health")))?;
        let mut response = send(request.timeout(CALL_TIME)).await?;
        let status = response.status().as_u16();
        let body = read(&mut response).await?;
        if status != 200 {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| Trouble::Invalid(format!("GET /health: {error}")))
    }

    /// The limits that it enforces now; none of an adapter that does not say.
    pub(crate) async fn enforces(&self) -> Vec<String> {
        self.health().await.map(|health| health.enforces).unwrap_or_default()
    }

    /// Starts a task, or joins it when it executes already; events up to `after` are left out where the adapter can.
    pub(crate) async fn run_task(&self, task: &RunTask, after: u64) -> Result<Session, Trouble> {
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
            let kind = Kind::Stream { parser: Parser::new(LARGEST_REPLY), count: 0 };
            return Ok(Session { response, kind });
        }
        if status.is_success() {
            return Ok(Session { response, kind: Kind::Json });
        }
        let body = read(&mut response).await?;
        Err(match serde_json::from_slice::<TaskReply>(&body) {
            Ok(reply) if !reply.success => Trouble::Failed(reply),
            _ => refused(status.as_u16(), &body),
        })
    }

    /// The events of a run that the adapter knows, from the first one, without ever starting it.
    pub(crate) async fn events(&self, run: RunId) -> Result<Session, Trouble> {
        let request = self.request(|client, url| client.get(format!("{url}/run-task/{run}/events")))?;
        let mut response = send(request.header(ACCEPT, "text/event-stream")).await?;
        let status = response.status();
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if status.is_success() && media_type.starts_with("text/event-stream") {
            return Ok(Session { response, kind: Kind::Stream { parser: Parser::new(LARGEST_REPLY), count: 0 } });
        }
        // An adapter that does not know the call has no such path.
        Err(refused(status.as_u16(), &read(&mut response).await?))
    }

    /// Stops a run and gives its outcome, where the adapter still knows it.
    pub(crate) async fn cancel(&self, run: RunId) -> Result<Option<TaskReply>, Trouble> {
        let request = self.request(|client, url| client.post(format!("{url}/run-task/{run}/cancel")))?;
        let mut response = send(request.timeout(Duration::from_secs(30))).await?;
        let status = response.status().as_u16();
        let body = read(&mut response).await?;
        // An adapter that knows only the two calls of 002 has no such path.
        Ok(if status == 200 { serde_json::from_slice(&body).ok() } else { None })
    }

    /// Brings the answer to a permission.
    pub(crate) async fn decide(&self, run: RunId, id: &str, given: &PermissionGiven) -> Result<(), Trouble> {
        self.answer(&["run-task", &run.to_string(), "permission", id], &Json::of(given)).await
    }

    /// Brings what the caller said.
    pub(crate) async fn give(&self, run: RunId, given: &InputGiven) -> Result<(), Trouble> {
        self.answer(&["run-task", &run.to_string(), "input"], &Json::of(given)).await
    }

    async fn answer(&self, path: &[&str], body: &Json) -> Result<(), Trouble> {
        let request = self.request(|client, url| {
            // The id is the adapter's own and may hold anything.
            let url = reqwest::Url::parse(url).ok().and_then(|mut url| {
                url.path_segments_mut().ok()?.pop_if_empty().extend(path);
                Some(url)
            });
            client.post(url.map_or_else(String::new, String::from))
        })?;
        let request = request.header(CONTENT_TYPE, "application/json").body(body.get().to_owned());
        let mut response = send(request.timeout(CALL_TIME)).await?;
        let status = response.status().as_u16();
        if response.status().is_success() {
            return Ok(());
        }
        Err(refused(status, &read(&mut response).await?))
    }

    fn request(&self, build: impl FnOnce(&Client, &str) -> RequestBuilder) -> Result<RequestBuilder, Trouble> {
        let endpoint = self.endpoint.borrow().clone();
        let Some(Endpoint { url, secret }) = endpoint else {
            return Err(Trouble::NotSent("the adapter has not started".to_owned()));
        };
        let request = build(&self.client, url.trim_end_matches('/'));
        Ok(match secret {
            Some(secret) => request.bearer_auth(secret.expose()),
            None => request,
        })
    }
}

async fn send(request: RequestBuilder) -> Result<Response, Trouble> {
    request.send().await.map_err(|error| {
        let reason = cause(&error);
        if error.is_connect() || error.is_builder() { Trouble::NotSent(reason) } else { Trouble::Broken(reason) }
    })
}

async fn read(response: &mut Response) -> Result<Vec<u8>, Trouble> {
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| Trouble::Broken(cause(&error)))? {
        if body.len() + part.len() > LARGEST_REPLY {
            return Err(Trouble::Invalid(format!("the reply is larger than {LARGEST_REPLY} bytes")));
        }
        body.extend_from_slice(&part);
    }
    Ok(body)
}

fn refused(status: u16, body: &[u8]) -> Trouble {
    if status == 409 {
        return Trouble::Busy;
    }
    let message = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) if !body.error.message.is_empty() => body.error.message,
        _ => format!("status {status}"),
    };
    Trouble::Refused { status, message }
}

fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

// === impl Session ===

impl Session {
    /// The next thing that happened. The result is the last; an end without one is a broken connection.
    pub(crate) async fn next(&mut self) -> Result<Happening, Trouble> {
        let Kind::Stream { parser, count } = &mut self.kind else {
            return parse(&read(&mut self.response).await?).map(Happening::Result);
        };
        loop {
            while let Some(message) = parser.pop() {
                *count += 1;
                if message.event == event::RESULT {
                    return parse(message.data.as_bytes()).map(Happening::Result);
                }
                let seq = message.id.parse().unwrap_or(*count);
                if let Some(asked) = Asked::read(&message.event, &message.data) {
                    let asked = asked.map_err(|error| {
                        Trouble::Invalid(format!("a question of the adapter cannot be understood ({error})"))
                    })?;
                    return Ok(Happening::Asked { seq, asked });
                }
                match Piece::read(&message.event, &message.data) {
                    Some(piece) => return Ok(Happening::Piece { seq, piece }),
                    None => tracing::debug!(event = %message.event, "an event of the adapter is not understood"),
                }
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => parser.push(&bytes).map_err(|error| Trouble::Invalid(error.to_string()))?,
                Ok(None) => return Err(Trouble::Broken("the stream ended without a result".to_owned())),
                Err(error) => return Err(Trouble::Broken(cause(&error))),
            }
        }
    }
}

// === impl Asked ===

impl Asked {
    /// None for an event that is no question.
    fn read(name: &str, data: &str) -> Option<serde_json::Result<Self>> {
        match name {
            event::PERMISSION => Some(serde_json::from_str(data).map(Self::Permission)),
            event::INPUT_REQUIRED => Some(serde_json::from_str(data).map(Self::Input)),
            _ => None,
        }
    }
}

fn parse(body: &[u8]) -> Result<TaskReply, Trouble> {
    let reply: TaskReply = serde_json::from_slice(body)
        .map_err(|error| Trouble::Invalid(format!("the reply is not what an adapter answers ({error})")))?;
    match (reply.success, &reply.output) {
        (true, None) => Err(Trouble::Invalid("the reply says success and has no `output`".to_owned())),
        (true, Some(output)) if !output.is_object() => {
            Err(Trouble::Invalid("the reply's `output` is not an object like {\"text\":\"…\"}".to_owned()))
        }
        _ => Ok(reply),
    }
}

/// A number, text or object under a name of a JSON object, as given.
pub(crate) fn member(json: &Json, name: &str) -> Option<Json> {
    let members: Members = json.parse().ok()?;
    members.0.into_iter().find(|(key, value)| key == name && value.get() != "null").map(|(_, value)| value)
}
