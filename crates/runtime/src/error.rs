//! Why a runtime can't start, or stops on its own.

use std::{io, path::PathBuf};

use attache_os::path_error::PathError;
use attache_protocol::{Code, error::exit};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Path(#[from] PathError),
    /// Other users of this machine could read the token.
    #[error("other users of this machine can read {path} (mode {mode:03o}). Restrict it: `chmod 600 {path}`", path = path.display())]
    LooseProfile { path: PathBuf, mode: u32 },
    #[error("{} is not a profile file: {reason}. Move it away and pair with the same agent again: `attache runtime pair CODE`.", path.display())]
    BadProfile { path: PathBuf, reason: String },
    #[error(
        "no profile on this device. In the console, create a pairing code for the agent, then run `attache runtime pair CODE --api-base URL`. You don't need a new agent."
    )]
    NoProfile,
    #[error("no profile `{0}` on this device; `attache runtime profiles` lists all of them")]
    UnknownProfile(String),
    #[error("the profile `{0}` has no adapter. Start one and pair again with `--local-agent-endpoint URL`.")]
    NoAdapter(String),
    #[error("another runtime of this agent is already running on this device (lock {}). Stop it first.", path.display())]
    AlreadyRunning { path: PathBuf },
    /// The hub no longer accepts the token.
    #[error("{message}")]
    Denied { code: Code, message: String },
    #[error("can't start the adapter `{program}`: {reason}")]
    Adapter { program: String, reason: String },
    #[error(
        "the adapter executes {takes} task(s) at a time, but --concurrency asks for {asked}. Start the adapter with more (built-in: `--concurrency {asked}`; others: `concurrency` in their health), or leave --concurrency out."
    )]
    TooManyAtATime { asked: usize, takes: usize },
    #[error(transparent)]
    Hub(#[from] attache_client::Error),
}

// === impl Error ===

impl Error {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Path(_) | Self::BadProfile { .. } | Self::AlreadyRunning { .. } | Self::Adapter { .. } => {
                exit::FAILED
            }
            Self::NoAdapter(_) | Self::TooManyAtATime { .. } => exit::USAGE,
            Self::LooseProfile { .. } | Self::Denied { .. } => exit::DENIED,
            Self::NoProfile | Self::UnknownProfile(_) => exit::NOT_FOUND,
            Self::Hub(error) => error.exit_code(),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let named = PathError::at(path);
        move |source| named(source).into()
    }

    /// For the user when the hub no longer accepts this device: the agent remains, only the device must be paired
    /// again.
    pub(crate) fn denied(error: &attache_client::Error) -> Self {
        let code = error.code().unwrap_or(Code::Unauthenticated);
        let hint = match error {
            attache_client::Error::Refused(refusal) if !refusal.hint.is_empty() => refusal.hint.as_str(),
            _ => Code::RuntimeRevoked.hint(),
        };
        let message = match code {
            Code::RuntimeSuperseded => format!("This device was replaced. {hint}"),
            Code::RuntimeRevoked => format!("This device was disconnected from its agent. {hint}"),
            Code::TokenReplaced => format!("A newer token of this device is in use elsewhere. {hint}"),
            // Hints of other refusals are about API keys, which a device doesn't have.
            _ => format!("The hub doesn't accept this device's token. {}", Code::RuntimeRevoked.hint()),
        };
        Self::Denied { code, message }
    }
}
