//! The word that a run must not go on, with the reason; the first one counts.

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(crate) struct StopSignal {
    token: CancellationToken,
    reason: Arc<OnceLock<String>>,
}

/// How the caller of a runtime ends it: first politely, then at once.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// No new run is pulled; the one that executes is finished first.
    pub finish: CancellationToken,
    /// The run that executes is stopped and reported as failed.
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

    /// Waits for the word.
    pub(crate) async fn requested(&self) -> String {
        self.token.cancelled().await;
        self.reason.get().cloned().unwrap_or_default()
    }
}
