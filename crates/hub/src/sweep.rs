//! The hub's clockwork: deadlines and the file of access rules every second, retention every hour.

use attache_protocol::Timestamp;
use attache_store::record::{Retention, RetentionResult};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{Handle, stall_detector::StallDetector};

/// How many rows of the log are removed in one transaction.
const ROWS_PER_REMOVAL: usize = 5_000;
/// How many files uploads wait for at most while it is looked up whether an artifact has them.
const BLOBS_PER_LOOK: usize = 500;

/// Runs until the hub drains. A sweep that fails is tried again at the next tick.
pub(crate) async fn run(hub: Handle) {
    let mut ticks = interval(hub.options().sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first time is soon after the start, once claims and deadlines were looked at.
    let mut retained_at: Option<Instant> = None;
    let mut clock_set = false;
    let mut pulse = StallDetector::new(&hub);
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
                hub.device_reports().forget(&swept.offline);
                tracing::info!(runs = swept.runs.len(), offline = swept.offline.len(), "swept");
            }
            Ok(_) => {}
            // The store logs once that it cannot write.
            Err(attache_store::Error::Unwritable(_)) => {}
            Err(error) => tracing::warn!(%error, "the sweep failed"),
        }
        pulse.during(hub.sweep_handover()).await;
        if let Err(error) = pulse.during(hub.watch_rules_file()).await {
            tracing::warn!(%error, "the rules of the file could not be put in force");
        }
        warn_of_clock(&hub, &mut clock_set);
        match pulse.during(hub.store().advance_clock(hub.options().clock_step, hub.now())).await {
            Ok(clock) if retained_at.is_none_or(|at| at.elapsed() >= hub.options().retain_every) => {
                if retained_at.is_none() {
                    pulse.during(remove_lost_blobs(&hub)).await;
                }
                retained_at = Some(Instant::now());
                pulse.during(retain(&hub, clock)).await;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the clock of the store could not be moved"),
        }
    }
}

/// Says once that somebody has set the machine's clock, and once that it is right again.
fn warn_of_clock(hub: &Handle, clock_set: &mut bool) {
    let ahead = hub.env().clock_set_by();
    if ahead.is_some() != *clock_set {
        *clock_set = ahead.is_some();
        match ahead {
            Some(ahead) => tracing::warn!(
                ahead_ms = ahead,
                "the machine's clock was set; deadlines go on by the time that passes, and the hub's clock follows slowly"
            ),
            None => tracing::info!("the hub's clock and the machine's agree again"),
        }
    }
}

/// Removes files of artifacts that no row knows: a stop came between the file and its row, or between the row's removal and
/// the file's.
async fn remove_lost_blobs(hub: &Handle) {
    let removed = async {
        for part in hub.blobs().all().await?.chunks(BLOBS_PER_LOOK) {
            if hub.is_draining() {
                break;
            }
            hub.remove_blobs(part.to_vec()).await?;
        }
        Ok::<_, crate::Error>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(%error, "files that no artifact has could not be looked for");
    }
}

/// Forgets what is old by the store's own clock.
async fn retain(hub: &Handle, clock: Timestamp) {
    let retention = Retention {
        at: hub.now(),
        max_rows: ROWS_PER_REMOVAL,
        chunks_before: clock.minus(hub.options().keep_chunks),
        log_before: clock.minus(hub.options().keep_log),
        streams_before: clock.minus(hub.options().keep_streams),
        channels_before: clock.minus(hub.options().keep_channels),
        runs_before: clock.minus(hub.options().keep_runs),
        conversations_before: clock.minus(hub.options().keep_conversations),
        artifacts_before: clock.minus(hub.options().keep_artifacts),
        credentials_before: clock.minus(hub.options().keep_credentials),
    };
    // In small steps, so that nobody who writes has to wait for all of it.
    loop {
        let RetentionResult { more, blobs } = match hub.store().retain(retention).await {
            Ok(retained) => retained,
            Err(attache_store::Error::Unwritable(_)) => return,
            Err(error) => return tracing::warn!(%error, "retention failed"),
        };
        if let Err(error) = hub.remove_blobs(blobs).await {
            tracing::warn!(%error, "the files of removed artifacts could not be removed; the next start tries again");
        }
        if !more || hub.is_draining() {
            return;
        }
    }
}
