//! The HTTP calls to an executor of the reference implementation.

use std::time::Duration;

use attache_client::{
    egress::{CheckedUrl, EgressFailure, EgressGuard, EgressLimits, EgressReply, EgressRequest, StreamedReply},
    sse::SseParser,
};
use reqwest::{
    Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue},
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{
    max_message,
    messages::{CompatEvent, CompatResult, brief},
};

#[derive(Debug)]
pub(super) struct ExecutorClient {
    guard: EgressGuard,
    /// Without a slash at its end.
    url: String,
}

/// The events of one task.
#[derive(Debug)]
pub(super) struct TaskEvents {
    reply: StreamedReply,
    parser: SseParser,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExecutorError {
    /// The same call may succeed later.
    #[error("{0}")]
    Passing(String),
    #[error("{text}")]
    Status { status: StatusCode, text: String },
    #[error("{0}")]
    Final(String),
}

/// The other side sends something at least every 30 seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(100);
/// An archive takes its time.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

// === impl ExecutorClient ===

impl ExecutorClient {
    pub(super) fn new(guard: &EgressGuard, url: &str) -> Self {
        let limits = EgressLimits {
            total: CALL_TIMEOUT,
            silence: SILENCE_TIMEOUT,
            reply: max_message(),
            stream: 4 * max_message() as u64,
            ..EgressLimits::default()
        };
        Self { guard: guard.within(limits), url: url.trim_end_matches('/').to_owned() }
    }

    /// Posts a message and reads the answer.
    pub(super) async fn post(&self, message: Vec<u8>) -> Result<Box<RawValue>, ExecutorError> {
        let reply = self.send(Method::POST, "", message).await?;
        json(&reply)
    }

    pub(super) async fn events(&self, delegation: &str) -> Result<TaskEvents, ExecutorError> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = EgressRequest { method: Method::GET, headers, body: Default::default() };
        let target = self.target(&format!("/tasks/{delegation}/events"))?;
        let reply = self.guard.open(&target, request).await.map_err(ExecutorError::from)?;
        if reply.status != StatusCode::OK.as_u16() {
            let reply = reply.read().await?;
            return Err(refused(&reply));
        }
        Ok(TaskEvents { reply, parser: SseParser::new(max_message()) })
    }

    pub(super) async fn result(&self, delegation: &str) -> Result<CompatResult, ExecutorError> {
        let reply = self.send(Method::GET, &format!("/tasks/{delegation}/result"), Vec::new()).await;
        match reply {
            Ok(reply) => json(&reply),
            Err(ExecutorError::Status { status: StatusCode::NOT_FOUND, .. }) => {
                Ok(CompatResult { status: "not_found".to_owned(), ..CompatResult::default() })
            }
            Err(error) => Err(error),
        }
    }

    /// The result has arrived here, and the other side can forget it.
    pub(super) async fn acknowledge(&self, delegation: &str) -> Result<(), ExecutorError> {
        self.send(Method::POST, &format!("/tasks/{delegation}/ack"), Vec::new()).await.map(drop)
    }

    pub(super) async fn cancel(&self, delegation: &str) -> Result<(), ExecutorError> {
        match self.send(Method::POST, &format!("/cancel/{delegation}"), Vec::new()).await {
            // It is unknown, or has ended.
            Ok(_) | Err(ExecutorError::Status { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<EgressReply, ExecutorError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let target = self.target(path)?;
        let reply = self.guard.send(&target, EgressRequest { method, headers, body: body.into() }).await?;
        if (200..300).contains(&reply.status) { Ok(reply) } else { Err(refused(&reply)) }
    }

    fn target(&self, path: &str) -> Result<CheckedUrl, ExecutorError> {
        self.guard.check(&format!("{}{path}", self.url)).map_err(|error| ExecutorError::Final(error.to_string()))
    }
}

fn json<T: DeserializeOwned>(reply: &EgressReply) -> Result<T, ExecutorError> {
    serde_json::from_slice(&reply.body)
        .map_err(|error| ExecutorError::Final(format!("the answer isn't an AWCP message: {error}")))
}

fn refused(reply: &EgressReply) -> ExecutorError {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let text = format!("{status}: {}", brief(String::from_utf8_lossy(&reply.body).trim()));
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            ExecutorError::Passing(text)
        }
        _ => ExecutorError::Status { status, text },
    }
}

// === impl ExecutorError ===

impl From<EgressFailure> for ExecutorError {
    fn from(failure: EgressFailure) -> Self {
        if failure.is_passing() { Self::Passing(failure.to_string()) } else { Self::Final(failure.to_string()) }
    }
}

// === impl TaskEvents ===

impl TaskEvents {
    /// The next event. `None` at the end of the stream. Events of other kinds are skipped.
    pub(super) async fn next(&mut self) -> Result<Option<CompatEvent>, ExecutorError> {
        loop {
            while let Some(message) = self.parser.pop() {
                if let Ok(event) = serde_json::from_str(&message.data) {
                    return Ok(Some(event));
                }
            }
            let Some(bytes) = self.reply.next().await? else { return Ok(None) };
            self.parser.push(&bytes).map_err(|error| ExecutorError::Final(error.to_string()))?;
        }
    }
}
