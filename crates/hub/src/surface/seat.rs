//! A connection's seat among the allowed number. A WebSocket keeps it after its HTTP connection has become something else.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use crate::Handle;

#[derive(Clone)]
pub(crate) struct Seat(#[allow(dead_code, reason = "it counts for as long as somebody has it")] Arc<Taken>);

struct Taken {
    hub: Handle,
    _permit: OwnedSemaphorePermit,
}

// === impl Seat ===

impl Seat {
    pub(crate) fn new(hub: &Handle, permit: OwnedSemaphorePermit) -> Self {
        hub.metrics().connections.add(1);
        Self(Arc::new(Taken { hub: hub.clone(), _permit: permit }))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.hub.metrics().connections.take(1);
    }
}
