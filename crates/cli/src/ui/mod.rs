//! The person at the terminal: output, failures, questions, signals, and following a run.

pub(crate) mod failure;
pub(crate) mod follow;
pub(crate) mod hint;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod parse_error;
pub(crate) mod progress_line;
pub(crate) mod prompt;
pub(crate) mod queue_reason;
pub(crate) mod runtime_notices;
pub(crate) mod secret_prompt;
pub(crate) mod signals;
pub(crate) mod tool_input;
