//! Tool errors with a code, a message and a hint that tells the model or person what to do next.

use attache_client::{a2a, daemon, egress::EgressFailure};
use attache_protocol::Code;

/// Becomes a result with `isError`, because clients don't show protocol errors to the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code}). {hint}")]
pub struct ToolError {
    /// A stable error code.
    pub code: String,
    /// Without a final period.
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
                format!("can't reach the hub at {address}: {reason}"),
                "Ask the user whether the hub is running. `attache doctor` diagnoses the problem.",
            ),
            E::Unexplained { address, status } => {
                let hint = Code::from_text(code).map_or("Check that the address is an Attaché hub.", Code::hint);
                Self::new(code, format!("{address} answered with status {status}"), hint)
            }
            E::Untrusted { address, reason, hint } => Self::new(code, format!("can't trust {address}: {reason}"), hint),
            E::BadReply { address, reason } => Self::new(
                code,
                format!("{address} sent an invalid response: {reason}"),
                "Check that the address is an Attaché hub.",
            ),
            E::Invalid { what, hint } => Self::new("invalid_arguments", what, hint),
        }
    }
}

impl From<a2a::Error> for ToolError {
    fn from(error: a2a::Error) -> Self {
        let (code, hint) = match &error {
            a2a::Error::Refused(_) => ("refused", "Change the request as the message says, or use another agent."),
            a2a::Error::Denied { .. } => {
                return Self::new(
                    "unauthenticated",
                    "the agent requires a valid key",
                    "Ask the user to start the MCP server with --peer-key ORIGIN=FILE for this origin.",
                );
            }
            a2a::Error::Call(EgressFailure::Refused(refused)) if !refused.is_malformed() => {
                return Self::new(
                    Code::EgressRefused.as_str(),
                    "the agent's address is private or not encrypted, and calling it isn't allowed",
                    "Ask the user to allow it with `attache delegations allow --peer URL`.",
                );
            }
            a2a::Error::Call(_) => ("unreachable", "Check agent_url with list_agents, or try again later."),
            a2a::Error::NoCard { .. } => ("not_found", "Check agent_url with list_agents."),
            a2a::Error::Status { .. } | a2a::Error::NotUnderstood { .. } => ("bad_reply", "Check agent_url."),
            a2a::Error::NoInterface { .. } | a2a::Error::Unsupported { .. } | a2a::Error::Credential => {
                ("unsupported", "Use another agent.")
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
                format!("the delegation daemon isn't running: {reason}"),
                "Ask the user to run `attache daemon` and check its output.",
            ),
            daemon::Error::NoAnswer { reason, .. } => Self::new(
                Code::Unknown.as_str(),
                format!("the delegation daemon didn't respond, but may have processed the request: {reason}"),
                "Ask the user to check `attache delegations` before you retry, or the request may be executed twice.",
            ),
            daemon::Error::BadReply { reason } => Self::new(
                "bad_reply",
                format!("the delegation daemon sent an invalid response: {reason}"),
                "Ask the user to stop the daemon. It restarts automatically in the current version.",
            ),
        }
    }
}
