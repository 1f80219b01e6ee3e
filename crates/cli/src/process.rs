//! Process-level plumbing: threads, signals, the parent process and the ready file.

use std::{io, path::Path, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use tokio::{
    io::AsyncReadExt as _,
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use crate::{CommandFailure, commands::ProcessKind, home};

/// The async runtime of a command: multi-threaded for a server, single-threaded for a client.
pub(crate) fn executor(weight: ProcessKind) -> io::Result<Runtime> {
    if matches!(weight, ProcessKind::Server | ProcessKind::Bench) {
        allow_files();
    }
    match weight {
        ProcessKind::Server | ProcessKind::Child | ProcessKind::Bench => {
            Builder::new_multi_thread().enable_all().build()
        }
        ProcessKind::Client => Builder::new_current_thread().enable_all().build(),
    }
}

/// Raises the limit of open files: every connection is one, and the usual shell limit is far below a hub's needs.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    // If this fails, the hub still works, with fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The two stages of a shutdown.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShutdownSignals {
    /// The first signal: finish running work, accept nothing new.
    pub(crate) finish: CancellationToken,
    /// The second signal: stop immediately.
    pub(crate) abort: CancellationToken,
}

// === impl ShutdownSignals ===

impl ShutdownSignals {
    /// Starts listening for SIGINT and SIGTERM. The task lives as long as the process.
    pub(crate) fn of_signals() -> Result<Self, CommandFailure> {
        let ending = Self::default();
        let mut signals = TerminationSignals::new()?;
        let listener = ending.clone();
        tokio::spawn(async move {
            signals.next().await;
            listener.finish.cancel();
            signals.next().await;
            listener.abort.cancel();
        });
        Ok(ending)
    }
}

/// SIGINT and SIGTERM combined.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
}

// === impl TerminationSignals ===

impl TerminationSignals {
    pub(crate) fn new() -> Result<Self, CommandFailure> {
        let listen =
            |kind| signal(kind).map_err(|error| CommandFailure::failed(format!("can't listen for signals: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// SIGTERM only, for a process that leaves Ctrl-C to its parent.
    pub(crate) async fn terminated(&mut self) {
        self.terminate.recv().await;
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Resolves when standard input is closed, which happens when the parent process exits for any reason.
pub(crate) async fn parent_gone() {
    let mut input = tokio::io::stdin();
    let mut sink = [0; 256];
    loop {
        match input.read(&mut sink).await {
            Ok(0) | Err(_) => return,
            // A parent that writes is alive.
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Writes the ready file, which tells scripts that the server is listening and where.
pub(crate) fn write_ready<T: Serialize>(file: Option<&Path>, ready: &T) -> Result<(), CommandFailure> {
    let Some(file) = file else { return Ok(()) };
    let mut text = serde_json::to_vec(ready).expect("our own types serialise to JSON");
    text.push(b'\n');
    home::write_private(file, &text).map_err(|error| CommandFailure::file("write the ready file", file, &error))
}
