//! SIGINT, SIGTERM and SIGHUP: a person presses Ctrl-C, the system ends the process, or the terminal is gone.

use attache_os::machine;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::CommandFailure;
use crate::text::errors;

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
    /// Starts listening for the signals. The task lives as long as the process.
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

/// SIGINT, SIGTERM and SIGHUP combined.
#[derive(Debug)]
pub(crate) struct TerminationSignals {
    interrupt: Signal,
    terminate: Signal,
    /// `None` under `nohup`, which keeps a program going without its terminal.
    hang_up: Option<Signal>,
}

// === impl TerminationSignals ===

impl TerminationSignals {
    pub(crate) fn new() -> Result<Self, CommandFailure> {
        let listen = |kind| signal(kind).map_err(|error| CommandFailure::failed(errors::no_signals(error)));
        let hang_up = if machine::ignores_hang_up() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())?, hang_up })
    }

    /// SIGTERM only, for a process that leaves Ctrl-C to its parent.
    pub(crate) async fn terminated(&mut self) {
        self.terminate.recv().await;
    }

    pub(crate) async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hang_up {
                Some(hang_up) => hang_up.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = hung_up => {}
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
