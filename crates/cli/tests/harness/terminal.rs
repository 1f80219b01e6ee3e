//! A command at a terminal, with what a person sees and types. Needs `script`.

use std::{
    io::Write as _,
    path::PathBuf,
    process::{Child, Stdio},
};

use super::{TestHome, until};

/// A terminal that runs a command.
#[derive(Debug)]
pub struct TestTerminal {
    child: Child,
    log: PathBuf,
}

// === impl TestTerminal ===

impl TestTerminal {
    pub fn run(home: &TestHome, line: &str) -> Self {
        let log = home.path().join("screen");
        let line = format!("{} {line}", env!("CARGO_BIN_EXE_attache"));
        let mut command = home.program("script");
        command.args(["-q", "-f", "-e", "-c", &line]).arg(&log).env("TERM", "dumb");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, log }
    }

    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).replace('\r', "")
    }

    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        until(&format!("{text:?} on the screen"), || Some(self.screen()).filter(|screen| screen.contains(text)))
    }

    pub fn types(&mut self, line: &str) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn ends(&mut self) -> bool {
        self.child.wait().unwrap().success()
    }

    /// Closes it, as somebody closes its window.
    pub fn closes(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends the input, as Ctrl-D does.
    pub fn closes_input(&mut self) {
        drop(self.child.stdin.take());
    }
}
