//! The two pipes to whoever started this program: JSON lines in, JSON lines out.

use std::{
    io::{BufRead as _, Write as _, stdin, stdout},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::signals;

/// Something that happened outside.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FakeHostInput {
    Message(Value),
    /// SIGINT.
    Interrupt,
    /// Nothing more will come in.
    Closed,
}

#[derive(Debug)]
pub(super) struct HostPipes {
    incoming: Receiver<FakeHostInput>,
    closed: bool,
    /// Once set, nothing but SIGKILL ends this program.
    hanging: Arc<AtomicBool>,
}

// === impl HostPipes ===

impl HostPipes {
    /// Reads lines of JSON from stdin.
    pub(super) fn from_stdin() -> Self {
        let (client, sender) = Self::signals_only();
        thread::spawn(move || {
            for line in stdin().lock().lines().map_while(Result::ok) {
                // What is not JSON is not for this program.
                let Ok(message) = serde_json::from_str(&line) else { continue };
                if sender.send(FakeHostInput::Message(message)).is_err() {
                    return;
                }
            }
            let _ = sender.send(FakeHostInput::Closed);
        });
        client
    }

    /// Receives signals only; more can be sent through the sender.
    pub(super) fn signals_only() -> (Self, SyncSender<FakeHostInput>) {
        let (sender, incoming) = sync_channel(64);
        let hanging = Arc::new(AtomicBool::new(false));
        signals::watch(sender.clone(), Arc::clone(&hanging));
        (Self { incoming, closed: false, hanging }, sender)
    }

    pub(super) fn send(&self, message: &Value) {
        self.print(&format!("{message}\n"));
    }

    /// Prints exactly this. If the reader is gone, the rest is discarded.
    pub(super) fn print(&self, text: &str) {
        self.print_bytes(text.as_bytes());
    }

    pub(super) fn print_bytes(&self, bytes: &[u8]) {
        let mut out = stdout().lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() && !self.hanging.load(Ordering::Relaxed) {
            std::process::exit(0);
        }
    }

    pub(super) fn next(&mut self) -> FakeHostInput {
        if self.closed {
            return FakeHostInput::Closed;
        }
        self.noted(self.incoming.recv().unwrap_or(FakeHostInput::Closed))
    }

    /// The next thing until then, if any. After the end of the input there is only time.
    pub(super) fn next_until(&mut self, deadline: Instant) -> Option<FakeHostInput> {
        let left = deadline.saturating_duration_since(Instant::now());
        if self.closed {
            thread::sleep(left);
            return None;
        }
        match self.incoming.recv_timeout(left) {
            Ok(incoming) => Some(self.noted(incoming)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(self.noted(FakeHostInput::Closed)),
        }
    }

    /// Never returns, whatever happens.
    pub(super) fn hang(&self) -> ! {
        self.hanging.store(true, Ordering::Relaxed);
        loop {
            thread::sleep(Duration::from_secs(3600));
        }
    }

    fn noted(&mut self, incoming: FakeHostInput) -> FakeHostInput {
        self.closed |= incoming == FakeHostInput::Closed;
        incoming
    }
}
