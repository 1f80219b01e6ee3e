//! Connections that haven't authenticated yet. Their number is limited. A new one takes the place of the oldest of whoever has
//! the most, so that nobody keeps others out by opening connections and waiting.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Clones share the same slots.
#[derive(Debug, Clone)]
pub(super) struct Strangers {
    max: usize,
    waiting: Arc<Mutex<WaitingStrangers>>,
}

/// The slot of one connection. Dropped once it has authenticated, or has ended.
#[derive(Debug)]
pub(super) struct StrangerSlot {
    number: u64,
    strangers: Strangers,
}

#[derive(Debug, Default)]
struct WaitingStrangers {
    /// By number: the oldest first.
    slots: BTreeMap<u64, Stranger>,
    next: u64,
    /// When it was last logged that one was closed.
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Stranger {
    /// The host it connects from.
    host: String,
    cut: CancellationToken,
}

/// Whoever floods the port must not fill the log as well.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

// === impl Strangers ===

impl Strangers {
    pub(super) fn new(max: usize) -> Self {
        Self { max, waiting: Arc::default() }
    }

    /// Takes a slot for a connection from this address, and closes another one if there is none left.
    pub(super) fn admit(&self, from: &str, cut: &CancellationToken) -> StrangerSlot {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.slots.len() >= self.max {
            waiting.close_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.slots.insert(number, Stranger { host: host(from).to_owned(), cut: cut.clone() });
        StrangerSlot { number, strangers: self.clone() }
    }
}

// === impl WaitingStrangers ===

impl WaitingStrangers {
    fn close_one(&mut self) {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for stranger in self.slots.values() {
            *counts.entry(&stranger.host).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        let oldest = self.slots.iter().find(|(_, stranger)| counts.get(&*stranger.host) == Some(&most));
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        let Some(stranger) = self.slots.remove(&number) else { return };
        stranger.cut.cancel();
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            self.logged = Some(Instant::now());
            tracing::warn!(host = stranger.host, "too many unauthenticated SSH connections; closing the oldest");
        }
    }
}

// === impl StrangerSlot ===

impl Drop for StrangerSlot {
    fn drop(&mut self) {
        self.strangers.waiting.lock().unwrap_or_else(PoisonError::into_inner).slots.remove(&self.number);
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
        let strangers = Strangers::new(3);
        let cuts: Vec<CancellationToken> = (0..5).map(|_| CancellationToken::new()).collect();
        let closed = || cuts.iter().map(CancellationToken::is_cancelled).collect::<Vec<_>>();
        let _quiet = strangers.admit("10.0.0.1:1", &cuts[0]);
        let _first = strangers.admit("10.0.0.2:1", &cuts[1]);
        let second = strangers.admit("10.0.0.2:2", &cuts[2]);
        let _third = strangers.admit("10.0.0.2:3", &cuts[3]);
        assert_eq!(closed(), [false, true, false, false, false]);
        // Once it has authenticated, it can't be closed any more, and its slot is free.
        drop(second);
        let _fourth = strangers.admit("10.0.0.2:4", &cuts[4]);
        assert_eq!(closed(), [false, true, false, false, false]);
    }
}
