//! Asking the person at the terminal a question with a short answer.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use crate::{CommandContext, CommandFailure};

/// Yes or no; `None` when there is nobody to ask.
pub(crate) fn confirm(context: &CommandContext, question: &str) -> Result<Option<bool>, CommandFailure> {
    if !is_attended(context) {
        return Ok(None);
    }
    let _ = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}

/// Whether a person sits at both ends of a conversation with this command.
pub(crate) fn is_attended(context: &CommandContext) -> bool {
    io::stdin().is_terminal() && context.output.talk_terminal && !context.output.is_json()
}
