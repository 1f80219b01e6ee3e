//! Answers and event streams of remote agents, with their original state names.

use attache_a2a_wire::{RpcResponse, StreamResponse, v03};
use attache_protocol::{
    Json,
    json::{MAX_DEPTH, depth},
};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde::Deserialize;

use super::{
    Error, Result,
    dialect::{PeerBinding, PeerVersion},
    grpc, lenient,
};
use crate::{egress::StreamedReply, sse};

/// A message from a remote agent, with the task state exactly as it wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEvent<T> {
    pub what: T,
    pub native_status: Option<String>,
}

/// The events of a task, in order, until the remote agent closes the stream. A broken stream ends with an error. The
/// task continues, and can be subscribed to again.
#[derive(Debug)]
pub struct PeerEventStream {
    dialect: PeerDialect,
    source: PeerEventSource,
}

#[derive(Debug, Clone)]
pub(super) struct PeerDialect {
    pub(super) origin: String,
    pub(super) version: PeerVersion,
    pub(super) binding: PeerBinding,
}

#[derive(Debug)]
enum PeerEventSource {
    Stream(Box<(StreamedReply, sse::SseParser)>),
    Grpc(Box<grpc::GrpcMessages>),
    /// A remote agent that can't stream sends a single answer.
    One(Json),
    Over,
}

/// Where the state is in every answer that has one.
#[derive(Deserialize)]
struct EventWithState {
    #[serde(default)]
    status: Option<StatusState>,
    #[serde(default)]
    task: Option<TaskOrUpdate>,
    #[serde(default, rename = "statusUpdate", alias = "status_update")]
    status_update: Option<TaskOrUpdate>,
}

#[derive(Deserialize)]
struct TaskOrUpdate {
    #[serde(default)]
    status: Option<StatusState>,
}

#[derive(Deserialize)]
struct StatusState {
    #[serde(default)]
    state: Option<String>,
}

/// Maximum size of an event.
const MAX_EVENT: usize = 16 << 20;

// === impl PeerEvent ===

impl<T> PeerEvent<T> {
    pub(super) fn new(what: T, said: &Json) -> Self {
        let native_status = said.parse::<EventWithState>().ok().and_then(|peek| {
            let inner = peek.task.or(peek.status_update).and_then(|task| task.status);
            peek.status.or(inner)?.state
        });
        Self { what, native_status }
    }
}

// === impl PeerDialect ===

impl PeerDialect {
    pub(super) fn not_understood(&self, reason: impl ToString) -> Error {
        Error::not_understood(self.origin.clone(), reason)
    }

    /// The result inside a successful response body.
    pub(super) fn unwrap(&self, body: &[u8]) -> Result<Json> {
        if depth(body) > MAX_DEPTH {
            return Err(self.not_understood("it is nested too deeply"));
        }
        match self.binding {
            // Deletions are answered with nothing.
            PeerBinding::HttpJson | PeerBinding::Grpc if body.trim_ascii().is_empty() => Ok(Json::empty_object()),
            PeerBinding::HttpJson | PeerBinding::Grpc => {
                serde_json::from_slice(body).map_err(|error| self.not_understood(error))
            }
            PeerBinding::JsonRpc => {
                let response: RpcResponse = serde_json::from_slice(body).map_err(|error| self.not_understood(error))?;
                match (response.error, response.result) {
                    (Some(error), _) => Err(Error::of_rpc(&error)),
                    (None, Some(result)) => Ok(result),
                    // 0.3 answers a deletion with `null`.
                    (None, None) => Ok(Json::from_text("null").expect("null is JSON")),
                }
            }
        }
    }

    pub(super) fn event(&self, said: &Json) -> Result<PeerEvent<StreamResponse>> {
        let event = match (self.version, self.binding) {
            (PeerVersion::V10, _) => lenient::read::<StreamResponse>(said),
            (PeerVersion::V03, PeerBinding::JsonRpc) => v03::StreamResponseV03::read(said)
                .or_else(|error| match lenient::mended(said).map(|mended| v03::StreamResponseV03::read(&mended)) {
                    Some(Ok(event)) => Ok(event),
                    Some(Err(_)) | None => Err(error),
                })
                .map(Into::into),
            (PeerVersion::V03, PeerBinding::HttpJson | PeerBinding::Grpc) => {
                lenient::read::<v03::rest::RestStreamResponseV03>(said).map(Into::into)
            }
        };
        event.map(|event| PeerEvent::new(event, said)).map_err(|error| self.not_understood(error))
    }
}

// === impl PeerEventStream ===

impl PeerEventStream {
    /// Reads the response to a streaming request. It may be an error or, if the remote agent can't stream, a single
    /// event.
    pub(super) async fn open(opened: StreamedReply, dialect: PeerDialect) -> Result<Self> {
        let is_success = matches!(opened.status, 200..=299);
        if is_success && is_stream(&opened.headers) {
            let source = PeerEventSource::Stream(Box::new((opened, sse::SseParser::new(MAX_EVENT))));
            return Ok(Self { dialect, source });
        }
        let reply = opened.read().await?;
        if !is_success {
            return Err(refusal(&dialect, reply.status, &reply.body));
        }
        let source = PeerEventSource::One(dialect.unwrap(&reply.body)?);
        Ok(Self { dialect, source })
    }

    /// The events of a gRPC call.
    pub(super) fn of_grpc(messages: grpc::GrpcMessages, dialect: PeerDialect) -> Self {
        Self { dialect, source: PeerEventSource::Grpc(Box::new(messages)) }
    }

    /// The next event. `None` once the remote agent has closed the stream. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<PeerEvent<StreamResponse>>> {
        let next = match &mut self.source {
            PeerEventSource::Over => return None,
            PeerEventSource::One(said) => {
                let event = self.dialect.event(said);
                self.source = PeerEventSource::Over;
                return Some(event);
            }
            PeerEventSource::Stream(stream) => read(&self.dialect, stream).await,
            PeerEventSource::Grpc(messages) => messages.event(&self.dialect).await.transpose(),
        };
        // After an error, the order of further events can't be trusted.
        if !matches!(next, Some(Ok(_))) {
            self.source = PeerEventSource::Over;
        }
        next
    }
}

async fn read(
    dialect: &PeerDialect,
    (opened, parser): &mut (StreamedReply, sse::SseParser),
) -> Option<Result<PeerEvent<StreamResponse>>> {
    loop {
        if let Some(message) = parser.pop() {
            return Some(said(dialect, &message).and_then(|said| dialect.event(&said)));
        }
        match opened.next().await {
            Ok(Some(bytes)) => {
                if let Err(error) = parser.push(&bytes) {
                    return Some(Err(dialect.not_understood(error)));
                }
            }
            Ok(None) => return None,
            Err(failure) => return Some(Err(failure.into())),
        }
    }
}

fn said(dialect: &PeerDialect, message: &sse::SseMessage) -> Result<Json> {
    let said = dialect.unwrap(message.data.as_bytes())?;
    if dialect.binding == PeerBinding::HttpJson
        && let error @ Error::Refused(_) = Error::of_status(String::new(), 500, message.data.as_bytes())
    {
        return Err(error);
    }
    Ok(said)
}

/// The error in an unsuccessful response. JSON-RPC explains itself in its own envelope, whatever the status.
pub(super) fn refusal(dialect: &PeerDialect, status: u16, body: &[u8]) -> Error {
    let framed = match dialect.binding {
        PeerBinding::JsonRpc if !matches!(status, 401 | 403) => serde_json::from_slice::<RpcResponse>(body).ok(),
        PeerBinding::JsonRpc | PeerBinding::HttpJson | PeerBinding::Grpc => None,
    };
    match framed.and_then(|response| response.error) {
        Some(error) => Error::of_rpc(&error),
        None => Error::of_status(dialect.origin.clone(), status, body),
    }
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream")
}
