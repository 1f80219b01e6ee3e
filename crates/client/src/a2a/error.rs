//! Errors of calls to remote agents: what a person should do, and what a program may retry.

use attache_a2a_wire::{Fault, RpcError};
use attache_protocol::{Json, secret::mask};
use serde::Deserialize;

use super::grpc;
use crate::egress::{EgressFailure, EgressRefusal};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The remote agent answered with a protocol error.
    #[error("the peer refused: {0}")]
    Refused(PeerFault),
    #[error(
        "{origin} doesn't accept the credential (status {status}). Check the key stored for it: --peer-key-file of `attache agents add`, key_file in policy.toml."
    )]
    Denied { origin: String, status: u16 },
    /// A response without an explanation: from a proxy, or a server that isn't an A2A agent.
    #[error("{origin} returned status {status} without an explanation. Check that it is an A2A agent.")]
    Status { origin: String, status: u16 },
    #[error(transparent)]
    Call(#[from] EgressFailure),
    #[error("{origin} sent something that isn't A2A: {reason}. Ask its owner which version it speaks.")]
    NotUnderstood { origin: String, reason: String },
    #[error("no agent card found at {url}. Use the URL of the agent or of its card.")]
    NoCard { url: String },
    #[error(
        "its card offers {offered}, none of which is supported. Supported: JSON-RPC, HTTP+JSON or gRPC of A2A 1.0 or 0.3."
    )]
    NoInterface { offered: String },
    #[error("the peer speaks A2A {version}, which doesn't support this: {what}.")]
    Unsupported { version: &'static str, what: &'static str },
    #[error("can't send the peer's key: it contains characters that aren't allowed in a header.")]
    Credential,
}

/// A protocol error as the remote agent sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerFault {
    /// `None` if it isn't one of the standard's errors.
    pub known: Option<Fault>,
    /// The JSON-RPC or HTTP code.
    pub code: i32,
    pub message: String,
}

/// The body of an HTTP+JSON error.
#[derive(Deserialize)]
struct RestErrorBody {
    error: RestErrorStatus,
}

#[derive(Deserialize)]
struct RestErrorStatus {
    #[serde(default)]
    code: i32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    details: Option<Json>,
}

#[derive(Deserialize)]
struct RestErrorDetail {
    #[serde(default)]
    reason: Option<String>,
}

const MAX_TEXT: usize = 2000;
const INTERNAL: i32 = -32603;

// === impl Error ===

impl Error {
    pub(super) fn not_understood(origin: String, reason: impl ToString) -> Self {
        Self::NotUnderstood { origin, reason: tidy(&reason.to_string()) }
    }

    /// Reads a response with an error status.
    pub(super) fn of_status(origin: String, status: u16, body: &[u8]) -> Self {
        let explained = serde_json::from_slice::<RestErrorBody>(body).ok();
        match (status, explained) {
            (401 | 403, _) => Self::Denied { origin, status },
            (_, Some(RestErrorBody { error })) if !error.message.is_empty() => {
                let reason = error.details.as_ref().and_then(reason);
                let known = reason.as_deref().and_then(by_reason).or_else(|| by_code(error.code));
                Self::Refused(PeerFault { known, code: i32::from(status), message: tidy(&error.message) })
            }
            (_, _) => Self::Status { origin, status },
        }
    }

    pub(super) fn of_rpc(error: &RpcError) -> Self {
        let reason = error.data.as_ref().and_then(reason);
        let known = reason.as_deref().and_then(by_reason).or_else(|| by_code(error.code));
        Self::Refused(PeerFault { known, code: error.code, message: tidy(&error.message) })
    }

    /// Reads the status of a failed gRPC call.
    pub(super) fn of_grpc(origin: String, status: &grpc::GrpcStatus) -> Self {
        let known = status.reason.as_deref().and_then(by_reason);
        match (status.http(), known) {
            (401 | 403, None) => Self::Denied { origin, status: status.http() },
            (code, known) => Self::Refused(PeerFault { known, code: i32::from(code), message: tidy(&status.message) }),
        }
    }

    /// The standard error that the remote agent returned.
    pub const fn fault(&self) -> Option<Fault> {
        match self {
            Self::Refused(fault) => fault.known,
            _ => None,
        }
    }

    /// The same request may succeed a little later.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Call(failure) => failure.is_passing(),
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Refused(PeerFault { known: None, code, .. }) => matches!(code, &INTERNAL | 429 | 500..),
            Self::Refused(_)
            | Self::Denied { .. }
            | Self::NotUnderstood { .. }
            | Self::NoCard { .. }
            | Self::NoInterface { .. }
            | Self::Unsupported { .. }
            | Self::Credential => false,
        }
    }

    /// The remote agent certainly did nothing: the request didn't arrive, or was refused. After any other error it may
    /// have been executed, so it can't simply be retried.
    pub const fn is_unexecuted(&self) -> bool {
        match self {
            Self::Call(failure) => failure.is_undelivered(),
            Self::Status { status, .. } => matches!(status, 300..500),
            Self::Refused(PeerFault { known: Some(Fault::InvalidAgentResponse), .. }) => false,
            Self::Refused(PeerFault { known: Some(_), .. }) => true,
            Self::Refused(PeerFault { known: None, code, .. }) => matches!(code, -32700 | -32602..=-32600 | 300..500),
            Self::Denied { .. } | Self::NoInterface { .. } | Self::Unsupported { .. } | Self::Credential => true,
            Self::NoCard { .. } => true,
            Self::NotUnderstood { .. } => false,
        }
    }
}

impl From<EgressRefusal> for Error {
    fn from(refused: EgressRefusal) -> Self {
        Self::Call(refused.into())
    }
}

// === impl PeerFault ===

impl std::fmt::Display for PeerFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.known {
            Some(known) => write!(f, "{} ({}, {})", self.message, known.reason(), self.code),
            None => write!(f, "{} ({})", self.message, self.code),
        }
    }
}

/// Remote agents put their `ErrorInfo` into a list, beside other details, or on its own.
fn reason(details: &Json) -> Option<String> {
    let list = details.parse::<Vec<Json>>().unwrap_or_else(|_| vec![details.clone()]);
    list.iter().find_map(|detail| detail.parse::<RestErrorDetail>().ok()?.reason)
}

fn by_reason(reason: &str) -> Option<Fault> {
    Fault::ALL.iter().copied().find(|fault| fault.reason() == reason)
}

fn by_code(code: i32) -> Option<Fault> {
    Fault::ALL.iter().copied().find(|fault| fault.rpc_code() == code)
}

/// Cleans a remote text for our pages and logs: limited length, one line, secrets masked.
fn tidy(text: &str) -> String {
    let line: String = text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
    mask(line.trim()).chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Error {
        Error::of_status("https://p".to_owned(), status, body.as_bytes())
    }

    #[test]
    fn errors_show_details_and_retry_safety() {
        let gone = of(
            404,
            r#"{"error":{"code":404,"status":"NOT_FOUND","message":"no\nsuch task","details":[{"@type":"x"},
               {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"d"}]}}"#,
        );
        assert_eq!(gone.fault(), Some(Fault::TaskNotFound));
        assert_eq!(gone.to_string(), "the peer refused: no such task (TASK_NOT_FOUND, 404)");
        let denied = of(401, r#"{"error":{"message":"who are you"}}"#);
        assert_eq!(denied, Error::Denied { origin: "https://p".to_owned(), status: 401 });
        let broken = EgressFailure::Broken { origin: "https://p".to_owned(), reason: "reset".to_owned() };
        let closed = EgressFailure::Unreachable { origin: "https://p".to_owned(), reason: "refused".to_owned() };
        let rpc = |code, data: Option<&str>| {
            let data = data.map(|data| Json::from_text(data).unwrap());
            Error::of_rpc(&RpcError { code, message: "ak_0123456789abcdef0123 is wrong".to_owned(), data })
        };
        assert_eq!(rpc(-32000, None).to_string(), "the peer refused: *** is wrong (-32000)");
        assert_eq!(rpc(-32004, Some(r#""free text""#)).fault(), Some(Fault::UnsupportedOperation));
        for (error, passing, unexecuted) in [
            (gone, false, true),
            (denied, false, true),
            (of(502, "<html>"), true, false),
            (of(404, "<html>"), false, true),
            (of(429, ""), true, true),
            (of(503, r#"{"error":{"message":"later"}}"#), true, false),
            (broken.into(), true, false),
            (closed.into(), true, true),
            (rpc(-32603, None), true, false),
            (rpc(-32602, None), false, true),
            (rpc(-32006, None), false, false),
            (rpc(-32000, None), false, false),
            (Error::not_understood("https://p".to_owned(), "x"), false, false),
        ] {
            assert_eq!((error.is_passing(), error.is_unexecuted()), (passing, unexecuted), "{error}");
        }
    }
}
