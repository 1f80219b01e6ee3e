//! The hub's clockwork: deadlines and the file of access rules every second, retention every hour.

use std::time::Duration;

use attache_protocol::Timestamp;
use attache_store::record::Retention;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::Handle;

/// What two clocks say at a time. Only one of them goes on while the machine is suspended.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    now: Timestamp,
    awake: Duration,
}

/// Runs until the hub drains. A sweep that fails is tried again at the next tick.
pub(crate) async fn run(hub: Handle) {
    let mut ticks = interval(hub.options().sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut retained_at = Instant::now();
    let mut clocks = Clocks::read(&hub);
    let mut stood_still = false;
    loop {
        let waits_from = Instant::now();
        tokio::select! {
            () = hub.drained() => return,
            _ = ticks.tick() => {}
        }
        let (before, late) = (clocks, waits_from.elapsed().saturating_sub(hub.options().sweep_every));
        clocks = Clocks::read(&hub);
        stood_still |= clocks.asleep_since(before).max(late) > hub.options().heartbeat_timeout / 4;
        if stood_still {
            // As after a start: nobody could say that it still works, so what devices hold is not lost by that.
            if let Err(error) = hub.store().renew_claims(hub.options().heartbeat_timeout, hub.now()).await {
                tracing::warn!(%error, "the claims could not be renewed after a standstill");
                continue;
            }
            tracing::info!("the hub stood still for a while; every claim is renewed");
            stood_still = false;
        }
        match hub.store().sweep(hub.options().heartbeat_timeout, hub.now()).await {
            Ok(swept) if !swept.runs.is_empty() || !swept.offline.is_empty() => {
                hub.words().forget(&swept.offline);
                tracing::info!(runs = swept.runs.len(), offline = swept.offline.len(), "swept");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the sweep failed"),
        }
        hub.sweep_handover().await;
        if let Err(error) = hub.watch_rules_file().await {
            tracing::warn!(%error, "the rules of the file could not be put in force");
        }
        if retained_at.elapsed() >= hub.options().retain_every {
            retained_at = Instant::now();
            retain(&hub).await;
        }
    }
}

// === impl Clocks ===

impl Clocks {
    fn read(hub: &Handle) -> Self {
        Self { now: hub.now(), awake: hub.env().awake() }
    }

    fn asleep_since(self, before: Self) -> Duration {
        self.now.since(before.now).saturating_sub(self.awake.saturating_sub(before.awake))
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
