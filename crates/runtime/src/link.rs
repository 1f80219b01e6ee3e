//! Notices about the hub and the disk: once when they fail, once when they are back, and for good when the hub refuses
//! this device.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::Code;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Error, RuntimeNotice, notice::Observer};

#[derive(Clone)]
pub(crate) struct HubLink(Arc<SharedHubLink>);

struct SharedHubLink {
    observer: Option<Observer>,
    state: Mutex<HubLinkState>,
    denied: CancellationToken,
    /// Changes when the hub is back.
    back: watch::Sender<()>,
}

#[derive(Default)]
struct HubLinkState {
    away: bool,
    ledger_fails: bool,
    denied: Option<Error>,
}

// === impl HubLink ===

impl HubLink {
    pub(crate) fn new(observer: Option<Observer>) -> Self {
        Self(Arc::new(SharedHubLink {
            observer,
            state: Mutex::default(),
            denied: CancellationToken::new(),
            back: watch::Sender::new(()),
        }))
    }

    pub(crate) fn notify(&self, notice: &RuntimeNotice) {
        tracing::debug!(?notice);
        if let Some(observer) = &self.0.observer {
            observer(notice);
        }
    }

    /// The hub answered.
    pub(crate) fn hub_answered(&self) {
        if std::mem::take(&mut self.state().away) {
            tracing::info!("the hub is back");
            self.notify(&RuntimeNotice::HubBack);
            self.0.back.send_replace(());
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.state().away
    }

    /// Changes whenever the hub is back from now on.
    pub(crate) fn hub_back(&self) -> watch::Receiver<()> {
        self.0.back.subscribe()
    }

    /// The hub did not answer, or refused. A refused credential stops the runtime.
    pub(crate) fn failed(&self, error: &attache_client::Error) {
        // Sent before the token was rotated. The heartbeat finds out whether the newest one is valid.
        if error.code() == Some(Code::TokenReplaced) {
            return;
        }
        if error.is_denied() {
            self.deny(error);
            return;
        }
        if !std::mem::replace(&mut self.state().away, true) {
            let reason = error.to_string();
            tracing::warn!(%reason, "the hub does not answer; retrying");
            self.notify(&RuntimeNotice::HubAway { reason });
        }
    }

    /// The hub refuses the newest token of this device.
    pub(crate) fn deny(&self, error: &attache_client::Error) {
        self.state().denied.get_or_insert_with(|| Error::denied(error));
        self.0.denied.cancel();
    }

    /// The ledger could not be written.
    pub(crate) fn ledger_failed(&self, error: &Error) {
        if !std::mem::replace(&mut self.state().ledger_fails, true) {
            let reason = error.to_string();
            tracing::error!(%reason, "failed to write the ledger; no new run is started");
            self.notify(&RuntimeNotice::LedgerUnwritable { reason });
        }
    }

    pub(crate) fn ledger_written(&self) {
        if std::mem::take(&mut self.state().ledger_fails) {
            tracing::info!("the ledger can be written again");
            self.notify(&RuntimeNotice::LedgerWritable);
        }
    }

    pub(crate) fn ledger_fails(&self) -> bool {
        self.state().ledger_fails
    }

    /// Waits until the hub refuses this device.
    pub(crate) async fn denied(&self) {
        self.0.denied.cancelled().await;
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.0.denied.is_cancelled()
    }

    pub(crate) fn take_denial(&self) -> Option<Error> {
        self.state().denied.take()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, HubLinkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HubLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HubLink")
    }
}
