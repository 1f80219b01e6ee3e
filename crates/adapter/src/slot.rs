//! The slots where runs execute (one by default), and the memory of the runs that ended there last.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::RunId;

use crate::execution::Execution;

#[derive(Debug)]
pub(crate) struct RunSlots {
    state: Mutex<SlotsState>,
    count: NonZeroUsize,
}

#[derive(Debug, Default)]
struct SlotsState {
    /// The current runs and the ones that ended last, oldest first. Never more than there are slots.
    runs: VecDeque<Arc<Execution>>,
    closed: bool,
}

/// The result of a request to run a task.
#[derive(Debug)]
pub(crate) enum RunAdmission {
    /// The slot belongs to the caller, who must now drive the execution to its end.
    Start(Arc<Execution>),
    /// The same run is executing or has just ended: the caller follows it.
    Join(Arc<Execution>),
    /// All slots are taken. This is the oldest run.
    Busy(RunId),
    Closed,
}

// === impl RunSlots ===

impl RunSlots {
    pub(crate) fn new(count: NonZeroUsize) -> Self {
        Self { state: Mutex::default(), count }
    }

    pub(crate) const fn count(&self) -> NonZeroUsize {
        self.count
    }

    pub(crate) fn admit(&self, id: RunId) -> RunAdmission {
        let mut state = self.state();
        if let Some(known) = state.find(id) {
            if !known.was_cancelled() {
                return RunAdmission::Join(known);
            }
            state.runs.retain(|run| run.id() != id);
        }
        if state.closed {
            return RunAdmission::Closed;
        }
        if state.runs.len() >= self.count.get() {
            match state.runs.iter().position(|run| !run.is_running()) {
                Some(ended) => _ = state.runs.remove(ended),
                None => return RunAdmission::Busy(state.runs.front().map_or(id, |run| run.id())),
            }
        }
        let execution = Arc::new(Execution::new(id));
        state.runs.push_back(execution.clone());
        RunAdmission::Start(execution)
    }

    pub(crate) fn find(&self, id: RunId) -> Option<Arc<Execution>> {
        self.state().find(id)
    }

    /// The current runs, oldest first.
    pub(crate) fn running(&self) -> Vec<Arc<Execution>> {
        self.state().runs.iter().filter(|run| run.is_running()).cloned().collect()
    }

    /// Prevents new runs from starting. The caller stops the ones still executing.
    pub(crate) fn close(&self) -> Vec<Arc<Execution>> {
        self.state().closed = true;
        self.running()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, SlotsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl SlotsState ===

impl SlotsState {
    fn find(&self, id: RunId) -> Option<Arc<Execution>> {
        self.runs.iter().find(|run| run.id() == id).cloned()
    }
}
