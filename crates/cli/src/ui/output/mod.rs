//! Terminal output: data on standard output, messages on standard error, colour only where supported.

pub(crate) mod clean;
pub(crate) mod qr;
mod style;
mod table;
pub(crate) mod time;
mod width;

use std::{
    collections::BTreeMap,
    fmt::{self, Display},
    io::{self, IsTerminal as _, Write as _},
};

use attache_protocol::error::exit;
use rustix::io::Errno;
use serde::Serialize;

pub(crate) use style::{TextStyle, status};
pub(crate) use table::{TextCell, TextTable};

use crate::{
    text::{parser, terms},
    ui::failure::CommandFailure,
};

/// The output settings of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalOutput {
    pub(crate) format: OutputFormat,
    /// Standard output is a terminal.
    pub(crate) terminal: bool,
    /// Standard error is a terminal.
    pub(crate) talk_terminal: bool,
    color: bool,
    talk_color: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// The wire types as one JSON document.
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColorChoice {
    /// On a terminal.
    Auto,
    Never,
}

// === impl TerminalOutput ===

impl TerminalOutput {
    pub(crate) fn new(format: OutputFormat, color: ColorChoice) -> Self {
        let (terminal, talk_terminal) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let wanted = color == ColorChoice::Auto;
        Self { format, terminal, talk_terminal, color: terminal && wanted, talk_color: talk_terminal && wanted }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Whether standard output has colours.
    pub(crate) const fn in_color(&self) -> bool {
        self.color
    }

    pub(crate) const fn talk_in_color(&self) -> bool {
        self.talk_color
    }

    /// Prints one JSON document: indented on a terminal, on one line otherwise.
    pub(crate) fn json<T: Serialize>(&self, value: &T) -> Result<(), CommandFailure> {
        let text = if self.terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        self.line(text.expect("our own types serialise to JSON"))
    }

    /// Prints what was done, where the hub answers with nothing: a sentence, or `{"removed":"ada"}` with `--json`.
    pub(crate) fn done(&self, what: &str, whom: impl Display, text: impl Display) -> Result<(), CommandFailure> {
        if self.is_json() {
            return self.json(&BTreeMap::from([(what, whom.to_string())]));
        }
        self.say(text);
        Ok(())
    }

    /// Prints one line of data.
    pub(crate) fn line(&self, text: impl Display) -> Result<(), CommandFailure> {
        self.print(format_args!("{text}\n"))
    }

    /// Prints data as is, without a newline. On a terminal, control characters are made visible.
    pub(crate) fn raw(&self, text: &str) -> Result<(), CommandFailure> {
        if self.terminal {
            self.print(format_args!("{}", clean::lines(text)))
        } else {
            self.print(format_args!("{text}"))
        }
    }

    pub(crate) fn table(&self, table: &TextTable) -> Result<(), CommandFailure> {
        let width = if self.terminal { style::terminal_width() } else { None };
        self.print(format_args!("{}", table.render(self.color, width)))
    }

    fn print(&self, text: fmt::Arguments<'_>) -> Result<(), CommandFailure> {
        let mut out = io::stdout().lock();
        let printed = out.write_fmt(text).and_then(|()| out.flush());
        printed.map_err(|error| match error.raw_os_error() {
            // Of a terminal, it says that the terminal is gone, as a broken pipe does of a pipe.
            Some(code) if self.terminal && code == Errno::IO.raw_os_error() => CommandFailure::quiet(exit::FAILED),
            _ => error.into(),
        })
    }

    /// Prints one message line. Errors are ignored: standard error may be closed.
    pub(crate) fn say(&self, text: impl Display) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// Prints one styled message line.
    pub(crate) fn say_styled(&self, style: TextStyle, text: impl Display) {
        self.say(style.paint(&text.to_string(), self.talk_color));
    }

    /// Styles text for standard output.
    pub(crate) fn paint(&self, style: TextStyle, text: &str) -> String {
        style.paint(text, self.color)
    }

    /// Prints why a command failed.
    pub(crate) fn failure(&self, failure: &CommandFailure) {
        if failure.message.is_empty() {
            return;
        }
        if self.is_json() {
            let body = attache_protocol::error::ErrorBody {
                error: attache_protocol::error::ErrorDetail {
                    code: failure.code.to_owned(),
                    message: failure.message.clone(),
                    hint: failure.hint.clone(),
                    remedy: None,
                },
            };
            self.say(serde_json::to_string(&body).expect("our own types serialise to JSON"));
            return;
        }
        let error = TextStyle::Bad.paint(terms::error(), self.talk_color);
        self.say(parser::labelled(&error, clean::lines(&failure.message)));
        if !failure.hint.is_empty() {
            self.say(format_args!("  {} {}", TextStyle::Dim.paint("→", self.talk_color), clean::lines(&failure.hint)));
        }
    }
}
