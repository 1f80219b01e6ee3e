//! The hub's clockwork: deadlines and the file of access rules every second, retention every hour.

use attache_store::record::Retention;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{Handle, pulse::Pulse};

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
        let (lease, now) = (hub.options().heartbeat_timeout, pulse.now());
        if pulse.take_standstill() {
            // As after a start: nobody could say that it still works, so what devices hold is not lost by that.
            if let Err(error) = pulse.during(hub.store().renew_claims(lease, now)).await {
                tracing::warn!(%error, "the claims could not be renewed after a standstill");
                pulse.remember_standstill();
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
