//! Whether it was the hub that stood still: then nobody could be heard, and the silence is held against nobody.

use std::{pin::pin, time::Duration};

use attache_protocol::Timestamp;
use tokio::time::{Instant, sleep};

use crate::Handle;

/// Notices that it was the hub that stood still: it was stopped, starved, or slept with its machine.
#[derive(Debug)]
pub(crate) struct StallDetector<'a> {
    hub: &'a Handle,
    observed: StallClocks,
    stood_still: bool,
    gap: Option<Stall>,
}

/// A standstill, in which nobody could be heard.
#[derive(Debug, Clone, Copy)]
struct Stall {
    length: Duration,
    /// By then everybody could be heard again.
    matters_until: Timestamp,
}

/// What the clocks say at a time. Only the first goes on while the machine is suspended.
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

    /// Beats while something is done: a store that is slow is no standstill.
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

    /// What the clock said when it was last looked at.
    pub(crate) const fn now(&self) -> Timestamp {
        self.observed.now
    }

    /// Whether it has stood still since this was last asked.
    pub(crate) const fn take_standstill(&mut self) -> bool {
        std::mem::replace(&mut self.stood_still, false)
    }

    /// What a standstill asks for could not be done: the next one to ask is told again.
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

    /// How long a device must have said nothing to be away. A standstill of the hub does not count.
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
