//! Asks the person at the terminal for confirmation.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::{CommandContext, CommandFailure};

/// Asks a yes/no question. `None` if there is no terminal.
pub(crate) fn confirm(context: &CommandContext, question: &str) -> Result<Option<bool>, CommandFailure> {
    if !is_attended(context) {
        return Ok(None);
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}

/// Whether a person can both read and answer questions of this command.
pub(crate) fn is_attended(context: &CommandContext) -> bool {
    io::stdin().is_terminal() && context.output.talk_terminal && !context.output.is_json()
}
