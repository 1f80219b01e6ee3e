//! Why a runtime cannot start, or stops before it was told to.

use std::{io, path::PathBuf};

use attache_protocol::{Code, error::exit};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Other people on this machine could read the token.
    #[error("other users of this machine can read {path} (mode {mode:03o}). Close it: `chmod 600 {path}`", path = path.display())]
    LooseProfile { path: PathBuf, mode: u32 },
    #[error("{} is not a profile file: {reason}. Move it away and pair the same agent again: `attache runtime pair CODE`.", path.display())]
    BadProfile { path: PathBuf, reason: String },
    #[error(
        "there is no profile on this device. In the console, make a pairing code for the agent, then run `attache runtime pair CODE --api-base URL`. Do not create a new agent."
    )]
    NoProfile,
    #[error("there is no profile `{0}` on this device; `attache runtime profiles` lists them")]
    UnknownProfile(String),
    #[error("the profile `{0}` names no adapter. Start one and pair again with `--local-agent-endpoint URL`.")]
    NoAdapter(String),
    #[error("another runtime of this agent already runs on this device (lock {}). Stop it first.", path.display())]
    AlreadyRunning { path: PathBuf },
    #[error("a daemon of this home folder already runs (lock {})", path.display())]
    DaemonRunning { path: PathBuf },
    #[error("cannot listen on {address}: {source}. Choose another address with --ssh-listen.")]
    Listen { address: std::net::SocketAddr, source: io::Error },
    /// The hub no longer accepts the token.
    #[error("{message}")]
    Denied { code: Code, message: String },
    #[error("the adapter `{program}` cannot be started: {reason}")]
    Adapter { program: String, reason: String },
    #[error(
        "the adapter takes {takes} task(s) at a time and {asked} were asked for. Start it for more (our own: `--concurrency {asked}`; another one says `concurrency` in its health), or leave --concurrency out."
    )]
    TooManyAtATime { asked: usize, takes: usize },
    #[error(transparent)]
    Hub(#[from] attache_client::Error),
}

// === impl Error ===

impl Error {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Io { .. }
            | Self::BadProfile { .. }
            | Self::AlreadyRunning { .. }
            | Self::Adapter { .. }
            | Self::DaemonRunning { .. }
            | Self::Listen { .. } => exit::FAILED,
            Self::NoAdapter(_) | Self::TooManyAtATime { .. } => exit::USAGE,
            Self::LooseProfile { .. } | Self::Denied { .. } => exit::DENIED,
            Self::NoProfile | Self::UnknownProfile(_) => exit::NOT_FOUND,
            Self::Hub(error) => error.exit_code(),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// What the user reads when the hub no longer knows this device: the agent stays, only the device is paired again.
    pub(crate) fn denied(error: &attache_client::Error) -> Self {
        let code = error.code().unwrap_or(Code::Unauthenticated);
        let hint = match error {
            attache_client::Error::Refused(refusal) if !refusal.hint.is_empty() => refusal.hint.as_str(),
            _ => Code::RuntimeRevoked.hint(),
        };
        let message = match code {
            Code::RuntimeSuperseded => format!("This device was replaced. {hint}"),
            Code::RuntimeRevoked => format!("This device was disconnected from its agent. {hint}"),
            Code::TokenReplaced => format!("Somebody else uses a newer token of this device. {hint}"),
            // Other refusals hint at API keys, which a device does not have.
            _ => format!("The hub does not accept this device's token. {}", Code::RuntimeRevoked.hint()),
        };
        Self::Denied { code, message }
    }
}
