//! The few styles of our talk. Everything reads the same without them.

use attache_protocol::rules::run::Status;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Busy,
}

/// The style of a run's state.
pub(crate) const fn status(status: Status) -> Style {
    match status {
        Status::Completed => Style::Good,
        Status::Failed => Style::Bad,
        Status::Running => Style::Busy,
        Status::Pending => Style::Plain,
        Status::Cancelled => Style::Dim,
    }
}

/// How many columns standard output has, when it is a terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 20)
}

// === impl Style ===

impl Style {
    pub(crate) fn paint(self, text: &str, color: bool) -> String {
        let code = match self {
            _ if !color => return text.to_owned(),
            Self::Plain => return text.to_owned(),
            Self::Strong => "1",
            Self::Dim => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}
