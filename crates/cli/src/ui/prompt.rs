//! Asks the person at the terminal for confirmation.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use super::{failure::CommandFailure, output::TerminalOutput};

/// Asks a yes/no question. `None` if there is no terminal.
pub(crate) fn confirm(output: &TerminalOutput, question: &str) -> Result<Option<bool>, CommandFailure> {
    if !is_attended(output) {
        return Ok(None);
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes" | "是")))
}

/// Whether a person can both read and answer questions of this command.
pub(crate) fn is_attended(output: &TerminalOutput) -> bool {
    io::stdin().is_terminal() && output.talk_terminal && !output.is_json()
}
