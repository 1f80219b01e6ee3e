//! When a delegation that was started may begin: the trait that says so, and the default with a number of slots.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc};

use tokio::sync::Semaphore;

/// Gives turns. Whoever waits for one has been accepted, and its lease runs.
pub trait CollaboratorScheduler: Send + Sync + fmt::Debug {
    /// Waits for the turn of a delegation, which lasts until the answer is dropped.
    fn acquire<'a>(
        &'a self,
        caller: &'a str,
        delegation: &'a str,
    ) -> Pin<Box<dyn Future<Output = SchedulerPermit> + Send + 'a>>;
}

/// Whatever the scheduler wants back.
pub struct SchedulerPermit(#[allow(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send + Sync>);

/// So many at a time, in the order in which they came.
#[derive(Debug, Clone)]
pub struct SlotScheduler(Arc<Semaphore>);

// === impl SchedulerPermit ===

impl SchedulerPermit {
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for SchedulerPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Turn")
    }
}

// === impl SlotScheduler ===

impl SlotScheduler {
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }
}

impl CollaboratorScheduler for SlotScheduler {
    fn acquire<'a>(
        &'a self,
        _caller: &'a str,
        _delegation: &'a str,
    ) -> Pin<Box<dyn Future<Output = SchedulerPermit> + Send + 'a>> {
        // The semaphore is never closed, so there is always a permit to come.
        Box::pin(async { SchedulerPermit::new(self.0.clone().acquire_owned().await) })
    }
}
