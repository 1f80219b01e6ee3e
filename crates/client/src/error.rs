//! Errors between a client and a hub, with the next step for a person.

use attache_protocol::{
    Code,
    error::{ErrorBody, Remedy, exit},
    wire::{
        permission::AlreadyDecided,
        run::{Run, RunConflict},
    },
};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The hub refused the request.
    #[error("{0}")]
    Refused(Box<HubRefusal>),
    /// No answer, or the connection broke before the answer was complete.
    #[error("can't reach the hub at {address}: {reason}. {}", Code::Unreachable.hint())]
    Unreachable { address: String, reason: String },
    /// The server didn't prove that it is the hub.
    #[error("can't trust {address}: {reason}. {hint}")]
    Untrusted { address: String, reason: String, hint: String },
    /// An error status without the hub's explanation: from a proxy, or a server that isn't a hub.
    #[error("{}", unexplained(.address, *.status))]
    Unexplained { address: String, status: u16 },
    /// The answer isn't one of a hub.
    #[error("{address} doesn't answer like a hub: {reason}. Check that this is the address of an Attaché hub.")]
    BadReply { address: String, reason: String },
    /// The request was never sent: an option or argument is invalid.
    #[error("{what}. {hint}")]
    Invalid { what: String, hint: String },
}

/// The hub's own error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", sentence(.hint))]
pub struct HubRefusal {
    pub code: Code,
    pub message: String,
    pub hint: String,
    /// The hint in a form that can be said in other words.
    pub remedy: Option<Remedy>,
    pub status: u16,
    /// The current state of the run, if the claim is no longer valid.
    pub conflict: Option<Run>,
    /// The earlier decision, if the permission request was already decided.
    pub decided: Option<Box<AlreadyDecided>>,
}

fn sentence(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(" {hint}") }
}

// === impl Error ===

impl Error {
    /// Exit code of the command line for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(refusal) => refusal.code.exit_code(),
            Self::Unexplained { .. } => self.code().map_or(exit::FAILED, Code::exit_code),
            Self::Unreachable { .. } | Self::Untrusted { .. } => exit::UNREACHABLE,
            Self::BadReply { .. } => exit::FAILED,
            Self::Invalid { .. } => exit::USAGE,
        }
    }

    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::Unexplained { status, .. } => unexplained_code(*status),
            Self::Unreachable { .. } | Self::Untrusted { .. } => Some(Code::Unreachable),
            Self::BadReply { .. } | Self::Invalid { .. } => None,
        }
    }

    /// The run's current state, if the hub refused because the claim is no longer valid.
    pub fn conflict(&self) -> Option<&Run> {
        match self {
            Self::Refused(refusal) => refusal.conflict.as_ref(),
            _ => None,
        }
    }

    /// The earlier decision, if the hub refused because someone else decided first.
    pub fn decided(&self) -> Option<&AlreadyDecided> {
        match self {
            Self::Refused(refusal) => refusal.decided.as_deref(),
            _ => None,
        }
    }

    /// The credential isn't accepted. Retrying can't help.
    pub fn is_denied(&self) -> bool {
        matches!(self.status(), Some(401 | 403))
    }

    /// The HTTP status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            Self::Unexplained { status, .. } => Some(*status),
            Self::Unreachable { .. } | Self::Untrusted { .. } | Self::BadReply { .. } | Self::Invalid { .. } => None,
        }
    }

    /// The same request may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            // A device keeps its reports until the hub can prove itself again.
            Self::Unreachable { .. } | Self::Untrusted { .. } => true,
            Self::Refused(_) | Self::Unexplained { .. } => matches!(self.status(), Some(429 | 500..)),
            Self::BadReply { .. } | Self::Invalid { .. } => false,
        }
    }

    /// Reads a response with an error status.
    pub(crate) fn from_reply(address: &str, status: u16, body: &[u8]) -> Self {
        let Ok(ErrorBody { error }) = serde_json::from_slice(body) else {
            return Self::Unexplained { address: address.to_owned(), status };
        };
        let code = Code::from_text(&error.code).unwrap_or_else(|| code_of(status).unwrap_or(Code::Internal));
        let conflict = if status == 409 { conflict(body) } else { None };
        let decided = if code == Code::AlreadyDecided { serde_json::from_slice(body).ok() } else { None };
        Self::Refused(Box::new(HubRefusal {
            code,
            message: error.message,
            remedy: error.remedy.as_deref().and_then(Remedy::from_text),
            hint: error.hint,
            status,
            conflict,
            decided,
        }))
    }
}

fn unexplained(address: &str, status: u16) -> String {
    match unexplained_code(status) {
        Some(Code::Unreachable) => {
            format!("can't reach the hub at {address}: it answered with status {status}. {}", Code::Unreachable.hint())
        }
        Some(code) => format!("{address} answered with status {status}. {}", code.hint()),
        None => format!(
            "{address} doesn't answer like a hub: status {status} without an explanation. \
             Check that this is the address of an Attaché hub."
        ),
    }
}

/// A hub that can't explain itself is as good as absent.
fn unexplained_code(status: u16) -> Option<Code> {
    code_of(status).or((status >= 500).then_some(Code::Unreachable))
}

fn code_of(status: u16) -> Option<Code> {
    Some(match status {
        401 => Code::Unauthenticated,
        403 => Code::Forbidden,
        404 => Code::NotFound,
        413 => Code::TooLarge,
        429 => Code::TooManyRequests,
        _ => return None,
    })
}

fn conflict(body: &[u8]) -> Option<Run> {
    serde_json::from_slice::<RunConflict>(body).ok().map(|conflict| conflict.task_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_hubs_message() {
        let body =
            br#"{"error":{"code":"runtime_superseded","message":"This device was replaced.","hint":"Pair it again."}}"#;
        let error = Error::from_reply("http://h", 401, body);
        assert_eq!(error.to_string(), "This device was replaced. Pair it again.");
        assert_eq!(error.code(), Some(Code::RuntimeSuperseded));
        assert_eq!(error.exit_code(), exit::DENIED);
        assert!(error.is_denied() && !error.is_passing());
    }

    #[test]
    fn a_response_without_an_error_body_still_has_a_clear_error() {
        assert_eq!(Error::from_reply("http://h", 404, b"<html>").code(), Some(Code::NotFound));
        assert!(Error::from_reply("http://h", 502, b"").is_passing());
        assert_eq!(
            Error::from_reply("http://h", 302, b"").to_string(),
            "http://h doesn't answer like a hub: status 302 without an explanation. \
             Check that this is the address of an Attaché hub."
        );
    }
}
