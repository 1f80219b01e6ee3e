//! Reads a secret: without echo on a terminal, otherwise one line of standard input.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use attache_protocol::Secret;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::failure::CommandFailure;
use crate::text::errors;

/// Turns echo back on when dropped.
struct EchoOff(Termios);

pub(crate) fn ask(question: &str) -> Result<Secret<String>, CommandFailure> {
    let unseen = match io::stdin().is_terminal() {
        true => {
            let _ = write!(io::stderr(), "{question}");
            EchoOff::begin()
        }
        false => None,
    };
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    if unseen.is_some() {
        let _ = writeln!(io::stderr());
    }
    drop(unseen);
    match read {
        Ok(_) if !line.trim_end_matches(['\r', '\n']).is_empty() => {
            Ok(Secret::new(line.trim_end_matches(['\r', '\n']).to_owned()))
        }
        Ok(_) => Err(CommandFailure::usage(errors::no_password()).hint(errors::no_password_do())),
        Err(error) => Err(CommandFailure::usage(errors::password_unreadable(error)).hint(errors::password_text())),
    }
}

// === impl EchoOff ===

impl EchoOff {
    fn begin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Flush, &quiet).ok()?;
        Some(Self(before))
    }
}

impl Drop for EchoOff {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}
