//! What can go wrong with a tool, told so that a model or a person knows what to do next.

use attache_client::{a2a, daemon, egress::EgressFailure};
use attache_protocol::Code;

/// Becomes a result with `isError`: a protocol error is shown to nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code}). {hint}")]
pub struct ToolError {
    /// A stable name.
    pub code: String,
    /// Without a full stop.
    pub message: String,
    pub hint: String,
}

// === impl ToolError ===

impl ToolError {
    pub fn new(code: impl Into<String>, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let message = message.into().trim_end_matches('.').to_owned();
        Self { code: code.into(), message, hint: hint.into() }
    }

    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new("invalid_arguments", message, hint)
    }
}

impl From<attache_client::Error> for ToolError {
    fn from(error: attache_client::Error) -> Self {
        use attache_client::Error as E;
        let code = error.code().map_or("failed", Code::as_str);
        match error {
            E::Refused(refusal) => Self::new(code, refusal.message.clone(), refusal.hint.clone()),
            E::Unreachable { address, reason } => Self::new(
                code,
                format!("cannot reach the hub at {address}: {reason}"),
                "Ask the person whether it runs; `attache doctor` looks closer.",
            ),
            E::Untrusted { address, reason, hint } => {
                Self::new(code, format!("{address} cannot be trusted: {reason}"), hint)
            }
            E::BadReply { address, reason } => Self::new(
                code,
                format!("{address} answered in a way that no hub does: {reason}"),
                "Check the address: it must be that of an Attaché hub.",
            ),
            E::Invalid { what, hint } => Self::new("invalid_arguments", what, hint),
        }
    }
}

impl From<a2a::Error> for ToolError {
    fn from(error: a2a::Error) -> Self {
        let (code, hint) = match &error {
            a2a::Error::Refused(_) => ("refused", "Change the request as it says, or ask another agent."),
            a2a::Error::Denied { .. } => {
                return Self::new(
                    "unauthenticated",
                    "the agent wants a key that it accepts",
                    "Ask the person to start the MCP server with --peer-key ORIGIN=FILE for this origin.",
                );
            }
            a2a::Error::Call(EgressFailure::Refused(refused)) if !refused.is_malformed() => {
                return Self::new(
                    Code::EgressRefused.as_str(),
                    "the agent's address is private or not encrypted, and nobody has allowed to call it",
                    "A person allows it with `attache delegations allow --peer URL`.",
                );
            }
            a2a::Error::Call(_) => {
                ("unreachable", "Check agent_url, or try again later; list_agents shows whom to ask.")
            }
            a2a::Error::NoCard { .. } => ("not_found", "Check agent_url; list_agents shows whom to ask."),
            a2a::Error::Status { .. } | a2a::Error::NotUnderstood { .. } => ("bad_reply", "Check agent_url."),
            a2a::Error::NoInterface { .. } | a2a::Error::Unsupported { .. } | a2a::Error::Credential => {
                ("unsupported", "Ask another agent.")
            }
        };
        Self::new(code, error.to_string(), hint)
    }
}

impl From<daemon::Error> for ToolError {
    fn from(error: daemon::Error) -> Self {
        match error {
            daemon::Error::Refused(refusal) => {
                Self::new(refusal.code.as_str(), refusal.message.clone(), refusal.hint.clone())
            }
            daemon::Error::NotRunning { reason, .. } => Self::new(
                Code::Unreachable.as_str(),
                format!("the daemon that lends folders does not answer: {reason}"),
                "Ask the person to run `attache daemon` and to look at what it says.",
            ),
            daemon::Error::NoAnswer { reason, .. } => Self::new(
                Code::Unknown.as_str(),
                format!("the daemon that lends folders did not answer, and may have done what it was asked: {reason}"),
                "Have the person look at `attache delegations` before you ask again: it could be done twice.",
            ),
            daemon::Error::BadReply { reason } => Self::new(
                "bad_reply",
                format!("the daemon answered in a way that none of this version does: {reason}"),
                "Ask the person to stop it; it is started anew.",
            ),
        }
    }
}
