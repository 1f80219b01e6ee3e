//! Connections that haven't authenticated yet. Their number is limited. A new one replaces the oldest connection of the host
//! that has the most, so that nobody can lock others out by opening connections and waiting.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Clones share the same slots.
#[derive(Debug, Clone)]
pub(super) struct UnauthenticatedConnections {
    max: usize,
    waiting: Arc<Mutex<WaitingConnections>>,
}

/// The slot of one connection. Dropped once it has authenticated, or has ended.
#[derive(Debug)]
pub(super) struct UnauthenticatedSlot {
    number: u64,
    connections: UnauthenticatedConnections,
}

#[derive(Debug, Default)]
struct WaitingConnections {
    /// By number: the oldest first.
    slots: BTreeMap<u64, WaitingConnection>,
    next: u64,
    /// When it was last logged that one was closed.
    logged: Option<Instant>,
}

#[derive(Debug)]
struct WaitingConnection {
    /// The host it connects from.
    host: String,
    cut: CancellationToken,
}

/// Whoever floods the port must not fill the log as well.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

// === impl UnauthenticatedConnections ===

impl UnauthenticatedConnections {
    pub(super) fn new(max: usize) -> Self {
        Self { max, waiting: Arc::default() }
    }

    /// Takes a slot for a connection from this address, and closes another one if there is none left.
    pub(super) fn admit(&self, from: &str, cut: &CancellationToken) -> UnauthenticatedSlot {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.slots.len() >= self.max {
            waiting.close_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.slots.insert(number, WaitingConnection { host: host(from).to_owned(), cut: cut.clone() });
        UnauthenticatedSlot { number, connections: self.clone() }
    }
}

// === impl WaitingConnections ===

impl WaitingConnections {
    fn close_one(&mut self) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for connection in self.slots.values() {
            *counts.entry(&connection.host).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        let oldest = self.slots.iter().find(|(_, connection)| counts.get(&*connection.host) == Some(&most));
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        let Some(connection) = self.slots.remove(&number) else { return };
        connection.cut.cancel();
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            tracing::warn!(host = connection.host, "too many unauthenticated SSH connections; closing the oldest");
        }
    }
}

// === impl UnauthenticatedSlot ===

impl Drop for UnauthenticatedSlot {
    fn drop(&mut self) {
        self.connections.waiting.lock().unwrap_or_else(PoisonError::into_inner).slots.remove(&self.number);
    }
}

/// Without the port.
fn host(from: &str) -> &str {
    from.rsplit_once(':').map_or(from, |(host, _)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_whoever_has_the_most_is_closed() {
        let unauthenticated = UnauthenticatedConnections::new(3);
        let cuts: Vec<CancellationToken> = (0..5).map(|_| CancellationToken::new()).collect();
        let closed = || cuts.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
        let _quiet = unauthenticated.admit("10.0.0.1:1", &cuts[0]);
        let _first = unauthenticated.admit("10.0.0.2:1", &cuts[1]);
        let second = unauthenticated.admit("10.0.0.2:2", &cuts[2]);
        let _third = unauthenticated.admit("10.0.0.2:3", &cuts[3]);
        assert_eq!(closed(), [false, true, false, false, false]);
        // Once it has authenticated, it can't be closed any more, and its slot is free.
        drop(second);
        let _fourth = unauthenticated.admit("10.0.0.2:4", &cuts[4]);
        assert_eq!(closed(), [false, true, false, false, false]);
    }
}
