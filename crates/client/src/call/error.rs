//! Errors of a call: from the connection to the hub, or from the agent.

use attache_protocol::wire::call::CallId;

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The hub refused, or couldn't be reached.
    #[error(transparent)]
    Hub(#[from] Error),
    /// The agent failed, or the call was ended.
    #[error(transparent)]
    Failed(#[from] CallFailed),
}

/// The agent's or hub's explanation of a call that didn't complete.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct CallFailed {
    pub call_id: CallId,
    /// `task_failed`, `runtime_lost`, `timed_out`, `cancelled`, …
    pub code: String,
    pub message: String,
}

// === impl CallError ===

impl CallError {
    /// The agent's own failure, if it is one.
    pub const fn failed(&self) -> Option<&CallFailed> {
        match self {
            Self::Failed(failed) => Some(failed),
            Self::Hub(_) => None,
        }
    }

    /// Someone cancelled the call.
    pub fn is_cancelled(&self) -> bool {
        self.failed().is_some_and(|failed| failed.code == "cancelled")
    }
}
