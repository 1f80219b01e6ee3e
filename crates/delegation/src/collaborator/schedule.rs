//! When a started delegation runs: the scheduler trait, and the default with a fixed number of slots.

use std::{any::Any, fmt, future::Future, pin::Pin, sync::Arc};

use tokio::sync::Semaphore;

/// Hands out permits. A delegation that waits for one has been accepted, and its lease is running.
pub trait CollaboratorScheduler: Send + Sync + fmt::Debug {
    /// Waits for a permit for a delegation, which is held until it is dropped.
    fn acquire<'a>(
        &'a self,
        caller: &'a str,
        delegation: &'a str,
    ) -> Pin<Box<dyn Future<Output = SchedulerPermit> + Send + 'a>>;
}

/// Whatever the scheduler needs back when the permit is dropped.
pub struct SchedulerPermit(#[allow(dead_code, reason = "it is only held and dropped")] Box<dyn Any + Send + Sync>);

/// A fixed number at a time, in order of arrival.
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
        f.write_str("SchedulerPermit")
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
        // The semaphore is never closed, so a permit always becomes available.
        Box::pin(async { SchedulerPermit::new(self.0.clone().acquire_owned().await) })
    }
}
