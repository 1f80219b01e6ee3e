//! The hub's clockwork: deadlines and the file of access rules every second, retention every hour.

use std::{pin::pin, time::Duration};

use attache_protocol::Timestamp;
use attache_store::record::Retention;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::Handle;

/// Notices that it was the hub that stood still: it was stopped, starved, or slept with its machine.
#[derive(Debug)]
struct Pulse<'a> {
    hub: &'a Handle,
    felt: Clocks,
    stood_still: bool,
    gap: Option<Gap>,
}

/// A standstill, in which nobody could be heard.
#[derive(Debug, Clone, Copy)]
struct Gap {
    length: Duration,
    /// By then everybody could be heard again.
    matters_until: Timestamp,
}

/// What the clocks say at a time. Only the first goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    now: Timestamp,
    awake: Duration,
    running: Instant,
}

/// Runs until the hub drains. A sweep that fails is tried again at the next tick.
pub(crate) async fn run(hub: Handle) {
    let mut ticks = interval(hub.options().sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut retained_at = Instant::now();
    let mut pulse = Pulse::new(&hub);
    loop {
        tokio::select! {
            () = hub.drained() => return,
            _ = pulse.during(ticks.tick()) => {}
        }
        let (lease, now) = (hub.options().heartbeat_timeout, pulse.felt.now);
        if std::mem::take(&mut pulse.stood_still) {
            // As after a start: nobody could say that it still works, so what devices hold is not lost by that.
            if let Err(error) = pulse.during(hub.store().renew_claims(lease, now)).await {
                tracing::warn!(%error, "the claims could not be renewed after a standstill");
                pulse.stood_still = true;
                continue;
            }
            tracing::info!("the hub stood still for a while; every claim was renewed");
        }
        let silence = pulse.silence();
        match pulse.during(hub.store().sweep(silence, now)).await {
            Ok(swept) if !swept.runs.is_empty() || !swept.offline.is_empty() => {
                hub.words().forget(&swept.offline);
                tracing::info!(runs = swept.runs.len(), offline = swept.offline.len(), "swept");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the sweep failed"),
        }
        pulse.during(hub.sweep_handover()).await;
        if let Err(error) = pulse.during(hub.watch_rules_file()).await {
            tracing::warn!(%error, "the rules of the file could not be put in force");
        }
        if retained_at.elapsed() >= hub.options().retain_every {
            retained_at = Instant::now();
            pulse.during(retain(&hub)).await;
        }
    }
}

async fn retain(hub: &Handle) {
    let retention = Retention {
        chunks_before: hub.now().minus(hub.options().keep_chunks),
        log_before: hub.now().minus(hub.options().keep_log),
    };
    if let Err(error) = hub.store().retain(retention).await {
        tracing::warn!(%error, "retention failed");
    }
}

// === impl Pulse ===

impl<'a> Pulse<'a> {
    fn new(hub: &'a Handle) -> Self {
        Self { hub, felt: Clocks::read(hub), stood_still: false, gap: None }
    }

    /// Beats while something is done: a store that is slow is no standstill.
    async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            let done = tokio::select! {
                biased;
                done = &mut work => Some(done),
                () = sleep(self.hub.options().sweep_every) => None,
            };
            self.feel();
            if let Some(done) = done {
                return done;
            }
        }
    }

    fn feel(&mut self) {
        let options = self.hub.options();
        let last = std::mem::replace(&mut self.felt, Clocks::read(self.hub));
        let late = self.felt.running.duration_since(last.running).saturating_sub(options.sweep_every);
        let slept = self.felt.slept_since(last);
        if late.max(slept) > options.heartbeat_timeout / 4 {
            self.stood_still = true;
            let matters_until = self.felt.now.plus(options.heartbeat_timeout);
            self.gap = Some(Gap { length: self.felt.now.since(last.now), matters_until });
        }
    }

    /// How long a device must have said nothing to be away. A standstill of the hub does not count.
    fn silence(&self) -> Duration {
        let gap = self.gap.filter(|gap| self.felt.now < gap.matters_until);
        self.hub.options().heartbeat_timeout + gap.map_or(Duration::ZERO, |gap| gap.length)
    }
}

// === impl Clocks ===

impl Clocks {
    fn read(hub: &Handle) -> Self {
        Self { now: hub.now(), awake: hub.env().awake(), running: Instant::now() }
    }

    fn slept_since(self, last: Self) -> Duration {
        self.now.since(last.now).saturating_sub(self.awake.saturating_sub(last.awake))
    }
}
