//! Why a command failed: what happened, what to do next, and the exit code.

use std::{fmt, io, path::Path, process::ExitCode};

use attache_protocol::{Code, error::exit};

use super::hint;

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandFailure {
    /// A stable error code, for `--json`.
    pub(crate) code: &'static str,
    /// Empty if everything has already been printed.
    pub(crate) message: String,
    pub(crate) hint: String,
    pub(crate) exit: u8,
}

// === impl CommandFailure ===

impl CommandFailure {
    pub(crate) fn new(code: &'static str, exit: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: String::new(), exit }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new("failed", exit::FAILED, message)
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", exit::USAGE, message)
    }

    /// Exits with a code and prints nothing.
    pub(crate) fn quiet(exit: u8) -> Self {
        Self::new("failed", exit, "")
    }

    /// Nothing is printed, because everything was said, or because nobody reads it.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// A failed operation on a file or folder.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let (code, hint) = match error.kind() {
            io::ErrorKind::NotFound => ("not_found", "Check the path."),
            io::ErrorKind::PermissionDenied => ("denied", "Check its owner and mode with `ls -ld`."),
            io::ErrorKind::StorageFull => ("failed", "Free up disk space."),
            _ => ("failed", "Check the path and the disk."),
        };
        Self::new(code, exit::FAILED, format!("can't {doing} {}: {error}", path.display())).hint(hint)
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// The hint for commands that take a user name.
    #[must_use]
    pub(crate) fn with_user_hint(self) -> Self {
        if self.code == Code::NotFound.as_str() {
            return self.hint("Check the name or id. To list them: `attache users`, `attache agents`.");
        }
        self
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit)
    }
}

impl fmt::Display for CommandFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, ". {}", self.hint) }
    }
}

/// Invalid arguments. The parser's message has several paragraphs; the first one states the problem.
impl From<clap::Error> for CommandFailure {
    fn from(error: clap::Error) -> Self {
        use clap::error::ErrorKind as K;
        let text = error.render().to_string();
        let usage = text.lines().find(|line| line.starts_with("Usage: ")).unwrap_or("Usage: attache <COMMAND>");
        let message = if matches!(error.kind(), K::DisplayHelpOnMissingArgumentOrSubcommand | K::MissingSubcommand) {
            "missing command".to_owned()
        } else {
            let first = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<_> = first.trim_start_matches("error: ").split_whitespace().collect();
            words.join(" ")
        };
        Self::usage(message).hint(format!("{usage}. For more, use --help."))
    }
}

impl From<attache_client::Error> for CommandFailure {
    fn from(error: attache_client::Error) -> Self {
        use attache_client::Error as E;
        let exit = error.exit_code();
        let code = error.code().map_or("failed", Code::as_str);
        let error = match error {
            E::Unexplained { address, status: status @ (500 | 502..) } => {
                E::Unreachable { address, reason: format!("it answered with status {status}") }
            }
            error => error,
        };
        match error {
            E::Refused(refusal) => Self::new(code, exit, refusal.message.trim_end_matches('.')).hint(hint::of(&refusal)),
            // A hub explains why it doesn't know a path or a method.
            E::Unexplained { address, status: status @ (404 | 501) } => {
                Self::failed(format!("not an Attaché hub: {address} answered with status {status}"))
                    .hint("Check the address and port, or choose another hub with --hub.")
            }
            E::Unexplained { address, status } => {
                let hint = Code::from_text(code).map_or("Check that the address is that of an Attaché hub.", hint::general);
                Self::new(code, exit, format!("{address} answered with status {status}")).hint(hint)
            }
            E::Unreachable { address, reason } => {
                Self::new(code, exit, format!("can't reach the hub at {address}: {reason}"))
                    .hint("Is it running? Start one with `attache up`, or choose another with --hub. Run `attache doctor` for details.")
            }
            E::Untrusted { address, reason, hint } => {
                Self::new(code, exit, format!("can't trust {address}: {reason}")).hint(hint)
            }
            E::Invalid { what, hint } => Self::new("usage", exit, what).hint(hint),
            E::BadReply { .. } => Self::new(code, exit, error.to_string().trim_end_matches('.')),
        }
    }
}

impl From<attache_client::daemon::Error> for CommandFailure {
    fn from(error: attache_client::daemon::Error) -> Self {
        use attache_client::daemon::Error as E;
        let exit = error.exit_code();
        let code = error.code().map_or("failed", Code::as_str);
        match error {
            E::Refused(refusal) => {
                Self::new(code, exit, refusal.message.trim_end_matches('.')).hint(refusal.hint.clone())
            }
            E::NotRunning { socket, reason } => {
                Self::new(code, exit, format!("can't reach the daemon at {}: {reason}", socket.display()))
                    .hint("Start it with `attache daemon`. Its log is in $AWCP_HOME/logs.")
            }
            E::NoAnswer { socket, reason } => {
                Self::new(code, exit, format!("the daemon at {} didn't answer: {reason}", socket.display())).hint(
                    "The request may still have succeeded: check `attache delegations` before you retry. \
                     Its log is in $AWCP_HOME/logs.",
                )
            }
            E::BadReply { .. } => Self::new(code, exit, error.to_string().trim_end_matches('.')),
        }
    }
}

/// Writing to standard output failed. A closed pipe is not an error worth a message.
impl From<io::Error> for CommandFailure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::quiet(exit::FAILED);
        }
        Self::failed(error.to_string())
    }
}

impl From<attache_delegation::Error> for CommandFailure {
    fn from(error: attache_delegation::Error) -> Self {
        Self::new("failed", error.exit_code(), error.to_string().trim_end_matches('.'))
    }
}

impl From<attache_runtime::Error> for CommandFailure {
    fn from(error: attache_runtime::Error) -> Self {
        use attache_runtime::Error as E;
        let exit = error.exit_code();
        match error {
            E::Hub(error) => error.into(),
            E::Denied { code, message } => Self::new(code.as_str(), exit, message.trim_end_matches('.')),
            E::NoProfile | E::UnknownProfile(_) => {
                Self::new("not_found", exit, error.to_string().trim_end_matches('.'))
            }
            _ => Self::new("failed", exit, error.to_string().trim_end_matches('.')),
        }
    }
}
