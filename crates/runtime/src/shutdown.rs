//! Signals to stop: one run, with a reason, or the runtime.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(crate) struct StopSignal {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

/// How the caller ends a runtime: first gracefully, then immediately.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// No new run is pulled. The current one finishes first.
    pub finish: CancellationToken,
    /// The current run is stopped and reported as failed.
    pub abort: CancellationToken,
}

// === impl Shutdown ===

impl Shutdown {
    pub fn finish(&self) {
        self.finish.cancel();
    }

    pub fn abort(&self) {
        self.finish.cancel();
        self.abort.cancel();
    }
}

// === impl StopSignal ===

impl StopSignal {
    pub(crate) fn set(&self, reason: impl Into<String>) {
        self.reason.get_or_init(|| reason.into());
        self.token.cancel();
    }

    /// Waits until a stop is requested, and returns the reason.
    pub(crate) async fn requested(&self) -> String {
        self.token.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}
