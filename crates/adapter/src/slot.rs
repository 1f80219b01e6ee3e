//! The one place where a run executes, and the memory of the run that was there last.

use std::sync::{Arc, Mutex, PoisonError};

use attache_protocol::RunId;

use crate::execution::Execution;

#[derive(Debug, Default)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The run that executes, or the one that ended last.
    last: Option<Arc<Execution>>,
    closed: bool,
}

/// What becomes of a request to run.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The slot is the caller's: it must now drive the execution to its end.
    Start(Arc<Execution>),
    /// The same run executes, or has just ended: read along.
    Join(Arc<Execution>),
    Busy(RunId),
    Closed,
}

// === impl Slot ===

impl Slot {
    pub(crate) fn admit(&self, id: RunId) -> Admission {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &state.last {
            if last.id() == id && !last.was_cancelled() {
                return Admission::Join(last.clone());
            }
            if last.is_running() {
                return Admission::Busy(last.id());
            }
        }
        if state.closed {
            return Admission::Closed;
        }
        let execution = Arc::new(Execution::new(id));
        state.last = Some(execution.clone());
        Admission::Start(execution)
    }

    pub(crate) fn find(&self, id: RunId) -> Option<Arc<Execution>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.clone().filter(|last| last.id() == id)
    }

    pub(crate) fn running(&self) -> Option<Arc<Execution>> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.last.clone().filter(|last| last.is_running())
    }

    /// Lets nothing start any more; the run that still executes is for the caller to stop.
    pub(crate) fn close(&self) -> Option<Arc<Execution>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.running()
    }
}
