//! Detects that the hub itself stalled. It received nothing during that time, so devices aren't blamed for their silence.

use std::{pin::pin, time::Duration};

use attache_protocol::Timestamp;
use tokio::time::{Instant, sleep};

use crate::Handle;

/// Detects that the hub stalled: it was stopped, starved, or suspended with its machine.
#[derive(Debug)]
pub(crate) struct StallDetector<'a> {
    hub: &'a Handle,
    observed: StallClocks,
    stood_still: bool,
    gap: Option<Stall>,
}

/// A stall, during which the hub received nothing.
#[derive(Debug, Clone, Copy)]
struct Stall {
    length: Duration,
    /// By then the hub was receiving again.
    matters_until: Timestamp,
}

/// A reading of the clocks. Only the first advances while the machine is suspended.
#[derive(Debug, Clone, Copy)]
struct StallClocks {
    now: Timestamp,
    awake: Duration,
    running: Instant,
}

// === impl StallDetector ===

impl<'a> StallDetector<'a> {
    pub(crate) fn new(hub: &'a Handle) -> Self {
        Self { hub, observed: StallClocks::read(hub), stood_still: false, gap: None }
    }

    /// Keeps observing while something is done: a slow store is not a stall.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let done = tokio::select! {
                biased;
                done = &mut work => Some(done),
                () = sleep(self.hub.options().sweep_every) => None,
            };
            self.observe();
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// The time of the last observation.
    pub(crate) const fn now(&self) -> Timestamp {
        self.observed.now
    }

    /// Whether it has stalled since the last call.
    pub(crate) const fn take_standstill(&mut self) -> bool {
        std::mem::replace(&mut self.stood_still, false)
    }

    /// Handling a stall failed: report it again to the next caller.
    pub(crate) const fn remember_standstill(&mut self) {
        self.stood_still = true;
    }

    fn observe(&mut self) {
        let options = self.hub.options();
        let last = std::mem::replace(&mut self.observed, StallClocks::read(self.hub));
        let late = self.observed.running.duration_since(last.running).saturating_sub(options.sweep_every);
        let slept = self.observed.slept_since(last);
        if late.max(slept) > options.heartbeat_timeout / 4 {
            self.stood_still = true;
            let matters_until = self.observed.now.plus(options.heartbeat_timeout);
            self.gap = Some(Stall { length: self.observed.now.since(last.now), matters_until });
        }
    }

    /// How long a device must be silent to count as offline. Stalls of the hub don't count.
    pub(crate) fn silence(&self) -> Duration {
        let gap = self.gap.filter(|gap| self.observed.now < gap.matters_until);
        self.hub.options().heartbeat_timeout + gap.map_or(Duration::ZERO, |gap| gap.length)
    }
}

// === impl StallClocks ===

impl StallClocks {
    fn read(hub: &Handle) -> Self {
        Self { now: hub.now(), awake: hub.env().awake(), running: Instant::now() }
    }

    fn slept_since(self, last: Self) -> Duration {
        self.now.since(last.now).saturating_sub(self.awake.saturating_sub(last.awake))
    }
}
