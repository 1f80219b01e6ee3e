//! Text styles. All output is readable without them.

use attache_protocol::rules::run::RunStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Plain,
    Strong,
    Dim,
    Good,
    Bad,
    Busy,
}

/// The style for a run status.
pub(crate) const fn status(status: RunStatus) -> TextStyle {
    match status {
        RunStatus::Completed => TextStyle::Good,
        RunStatus::Failed => TextStyle::Bad,
        RunStatus::Running => TextStyle::Busy,
        RunStatus::Pending => TextStyle::Plain,
        RunStatus::Cancelled => TextStyle::Dim,
    }
}

/// The width of standard output in columns, if it is a terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns >= 20)
}

// === impl TextStyle ===

impl TextStyle {
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
