//! The runs that this device answers for: the one that executes, and those whose outcome the hub has not heard yet.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use attache_protocol::RunId;

use crate::stop::Stop;

#[derive(Debug, Default)]
pub(crate) struct Claims(Mutex<BTreeMap<RunId, Stop>>);

// === impl Claims ===

impl Claims {
    /// From now on every heartbeat names the run.
    pub(crate) fn take(&self, run: RunId) -> Stop {
        self.held().entry(run).or_default().clone()
    }

    pub(crate) fn give_up(&self, run: RunId) {
        self.held().remove(&run);
    }

    pub(crate) fn stop(&self, run: RunId, reason: &str) {
        if let Some(stop) = self.held().get(&run) {
            stop.set(reason);
        }
    }

    pub(crate) fn named(&self) -> Vec<RunId> {
        self.held().keys().copied().collect()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<RunId, Stop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
