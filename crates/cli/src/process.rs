//! This process among others: its threads, its signals, its parent, and the file that says it is ready.

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

/// The threads for a command: many for a server, one for a client.
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

/// Every connection is a file, and the usual limit of a shell is far below what a hub serves.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    // Without it the hub works all the same, with fewer connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// The two steps in which a process is asked to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShutdownSignals {
    /// The first signal: finish what runs, take nothing new.
    pub(crate) finish: CancellationToken,
    /// The second signal: end at once.
    pub(crate) abort: CancellationToken,
}

// === impl ShutdownSignals ===

impl ShutdownSignals {
    /// Listens to SIGINT and SIGTERM from now on. The task lives as long as the process.
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

/// SIGINT and SIGTERM, as one.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
}

// === impl TerminationSignals ===

impl TerminationSignals {
    pub(crate) fn new() -> Result<Self, CommandFailure> {
        let listen =
            |kind| signal(kind).map_err(|error| CommandFailure::failed(format!("cannot listen to signals: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// SIGTERM alone: for a process that leaves Ctrl-C to its parent.
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

/// Resolves when the other end of our standard input is gone, which is when the parent has ended, however it ended.
pub(crate) async fn parent_gone() {
    let mut input = tokio::io::stdin();
    let mut sink = [0; 256];
    loop {
        match input.read(&mut sink).await {
            Ok(0) | Err(_) => return,
            // A parent that writes to us is alive.
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Tells scripts that a server listens, and where.
pub(crate) fn write_ready<T: Serialize>(file: Option<&Path>, ready: &T) -> Result<(), CommandFailure> {
    let Some(file) = file else { return Ok(()) };
    let mut text = serde_json::to_vec(ready).expect("our own types serialise to JSON");
    text.push(b'\n');
    home::write_private(file, &text).map_err(|error| CommandFailure::file("write the ready file", file, &error))
}
