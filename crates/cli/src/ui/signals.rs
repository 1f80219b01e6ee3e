//! SIGINT and SIGTERM: a person presses Ctrl-C, or the system ends the process.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::CommandFailure;

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
