//! Why a command failed: what happened, what to do next, and the exit code.

use std::{fmt, io, path::Path, process::ExitCode};

use attache_protocol::{Code, error::exit};

use super::hint;
use crate::text::{errors, parser};

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

    /// Nothing is printed: the message was already shown, or the output is closed.
    pub(crate) const fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// A failed operation on a file or folder.
    pub(crate) fn file(doing: &str, path: &Path, error: &io::Error) -> Self {
        let (code, hint) = match error.kind() {
            io::ErrorKind::NotFound => ("not_found", errors::check_path()),
            io::ErrorKind::PermissionDenied => ("denied", errors::check_owner()),
            io::ErrorKind::StorageFull => ("failed", errors::free_space()),
            _ => ("failed", errors::check_disk()),
        };
        let message = errors::file(errors::file_action(doing), path.display(), error);
        Self::new(code, exit::FAILED, message).hint(hint)
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: hint.into(), ..self }
    }

    /// The hint for commands that take a user name.
    #[must_use]
    pub(crate) fn with_user_hint(self) -> Self {
        if self.code == Code::NotFound.as_str() {
            return self.hint(errors::user_not_found_do());
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
        if self.hint.is_empty() { Ok(()) } else { f.write_str(&parser::then(&self.hint)) }
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
                E::Unreachable { address, reason: errors::status_reason(status) }
            }
            error => error,
        };
        match error {
            E::Refused(refusal) => Self::new(code, exit, hint::message(&refusal)).hint(hint::of(&refusal)),
            // A hub explains why it doesn't know a path or a method.
            E::Unexplained { address, status: status @ (404 | 501) } => {
                Self::failed(errors::not_a_hub(address, status)).hint(errors::not_a_hub_do())
            }
            E::Unexplained { address, status } => {
                let hint = Code::from_text(code).map_or_else(errors::unexplained_do, hint::general);
                Self::new(code, exit, errors::unexplained(address, status)).hint(hint)
            }
            E::Unreachable { address, reason } => {
                Self::new(code, exit, errors::hub_unreachable(address, reason)).hint(errors::hub_unreachable_do())
            }
            E::Untrusted { address, reason, hint } => {
                Self::new(code, exit, errors::untrusted(address, reason)).hint(hint)
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
            E::Refused(refusal) => Self::new(code, exit, hint::message(&refusal)).hint(hint::of_daemon(&refusal)),
            E::NotRunning { socket, reason } => {
                Self::new(code, exit, errors::daemon_unreachable(socket.display(), reason))
                    .hint(errors::daemon_unreachable_do())
            }
            E::NoAnswer { socket, reason } => {
                Self::new(code, exit, errors::daemon_silent(socket.display(), reason)).hint(errors::daemon_silent_do())
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
