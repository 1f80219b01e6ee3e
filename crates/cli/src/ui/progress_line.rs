//! How far long work has come: one line on a terminal that is drawn again and again, and nothing elsewhere.

use std::{
    io::{self, Write as _},
    time::{Duration, Instant},
};

use super::output::TerminalOutput;

/// How often the line is drawn at most.
const DRAW_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct ProgressLine {
    what: &'static str,
    is_shown: bool,
    drawn: Option<Instant>,
}

// === impl ProgressLine ===

impl ProgressLine {
    pub(crate) fn new(output: &TerminalOutput, what: &'static str) -> Self {
        Self { what, is_shown: output.talk_terminal && !output.is_json(), drawn: None }
    }

    pub(crate) fn draw(&mut self, done: u64, total: u64) {
        if !self.is_shown || self.drawn.is_some_and(|drawn| drawn.elapsed() < DRAW_INTERVAL) {
            return;
        }
        self.drawn = Some(Instant::now());
        let percent = done.saturating_mul(100) / total.max(1);
        let mut out = io::stderr().lock();
        let _ = write!(out, "\r\x1b[2K{} {percent:>3}% ({done} of {total})", self.what);
        let _ = out.flush();
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K");
        }
    }
}
