//! The hub's periodic work: deadlines and the access rules file every second, retention every hour.

use std::time::Duration;

use attache_protocol::Timestamp;
use attache_store::record::{RetentionLimits, RetentionResult};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::{
    Handle,
    nodes::{LocalNode, OtherNodes},
    stall_detector::StallDetector,
};

/// How many log rows are removed per transaction.
const ROWS_PER_REMOVAL: usize = 5_000;
/// How many files are checked at once for an artifact. Uploads wait meanwhile.
const BLOBS_PER_LOOK: usize = 500;

/// Runs until the hub drains. A failed sweep is retried at the next tick.
pub(crate) async fn run(hub: Handle) {
    let mut ticks = interval(hub.options().sweep_every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first retention runs soon after the start, once claims and deadlines were checked.
    let mut retained_at: Option<Instant> = None;
    let mut clock_set = false;
    let mut pulse = StallDetector::new(&hub);
    let mut other_nodes = hub.local_node().map(LocalNode::other_nodes);
    // Until then the store knows every upload of this hub.
    let known = hub.store().clock().await.ok().flatten();
    loop {
        tokio::select! {
            () = hub.drained() => return,
            _ = pulse.during(ticks.tick()) => {}
        }
        let (lease, now) = (hub.options().heartbeat_timeout, pulse.now());
        if !pulse.during(renew_if_alone(&hub, &mut other_nodes, lease, now)).await {
            continue;
        }
        if pulse.take_standstill() && !pulse.during(others_served(&hub)).await {
            // As after a start: heartbeats couldn't be received, so claims are renewed.
            if let Err(error) = pulse.during(hub.store().renew_claims(lease, now)).await {
                tracing::warn!(%error, "could not renew the claims after a stall");
                pulse.remember_standstill();
                continue;
            }
            tracing::info!("the hub stalled for a while; every claim was renewed");
        }
        let silence = pulse.silence();
        match pulse.during(hub.store().sweep(silence, now)).await {
            Ok(swept) if !swept.runs.is_empty() || !swept.offline.is_empty() => {
                hub.device_reports().forget(&swept.offline);
                tracing::info!(runs = swept.runs.len(), offline = swept.offline.len(), "swept");
            }
            Ok(_) => {}
            // The store logs once that it can't write.
            Err(attache_store::Error::Unwritable(_)) => {}
            Err(error) => tracing::warn!(%error, "the sweep failed"),
        }
        pulse.during(hub.sweep_handover()).await;
        if let Err(error) = pulse.during(hub.watch_rules_file()).await {
            tracing::warn!(%error, "could not apply the access rules file");
        }
        warn_of_clock(&hub, &mut clock_set);
        match pulse.during(hub.store().advance_clock(hub.options().clock_step, hub.now())).await {
            Ok(clock) if retained_at.is_none_or(|at| at.elapsed() >= hub.options().retain_every) => {
                // Another node may be writing a file whose row comes next.
                if retained_at.is_none() && hub.node().is_none() {
                    pulse.during(remove_lost_blobs(&hub, known)).await;
                }
                retained_at = Some(Instant::now());
                pulse.during(retain(&hub, clock)).await;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "could not advance the retention clock"),
        }
    }
}

/// Whether deadlines may be applied: not before it is known whether other nodes serve. If they are all gone, nothing was received
/// from devices meanwhile, and their claims are renewed as after a start. `other_nodes` is what was known.
async fn renew_if_alone(hub: &Handle, other_nodes: &mut Option<OtherNodes>, lease: Duration, now: Timestamp) -> bool {
    let current = hub.local_node().map(LocalNode::other_nodes);
    if *other_nodes == Some(OtherNodes::Unknown)
        && current == Some(OtherNodes::Absent)
        && let Err(error) = hub.store().renew_claims(lease, now).await
    {
        tracing::warn!(%error, "could not renew the claims");
        return false;
    }
    *other_nodes = current;
    current != Some(OtherNodes::Unknown)
}

/// Whether other nodes received heartbeats of devices while this node was stalled.
async fn others_served(hub: &Handle) -> bool {
    match hub.local_node() {
        Some(node) => node.others_served(hub).await.unwrap_or(false),
        None => false,
    }
}

/// Logs once that the machine's clock was set, and once that it is right again.
fn warn_of_clock(hub: &Handle, clock_set: &mut bool) {
    let ahead = hub.env().clock_set_by();
    if ahead.is_some() != *clock_set {
        *clock_set = ahead.is_some();
        match ahead {
            Some(ahead) => tracing::warn!(
                ahead_ms = ahead,
                "the machine's clock was set; deadlines follow elapsed time, and the hub's clock adjusts slowly"
            ),
            None => tracing::info!("the hub's clock and the machine's agree again"),
        }
    }
}

/// Removes artifact files without a row: the hub stopped between writing the file and its row, or between removing the
/// row and the file.
async fn remove_lost_blobs(hub: &Handle, known: Option<Timestamp>) {
    let removed = async {
        for part in hub.blobs().all(known).await?.chunks(BLOBS_PER_LOOK) {
            if hub.is_draining() {
                break;
            }
            hub.remove_blobs(part.to_vec()).await?;
        }
        Ok::<_, crate::Error>(())
    };
    if let Err(error) = removed.await {
        tracing::warn!(%error, "could not look for unreferenced artifact files");
    }
}

/// Removes old records by the store's retention clock.
async fn retain(hub: &Handle, clock: Timestamp) {
    let retention = RetentionLimits {
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
    // In small steps, so that other writers don't wait for all of it.
    loop {
        let RetentionResult { more, blobs } = match hub.store().retain(retention).await {
            Ok(retained) => retained,
            Err(attache_store::Error::Unwritable(_)) => return,
            Err(error) => return tracing::warn!(%error, "retention failed"),
        };
        if let Err(error) = hub.remove_blobs(blobs).await {
            tracing::warn!(%error, "could not remove the files of deleted artifacts; the next start tries again");
        }
        if !more || hub.is_draining() {
            return;
        }
    }
}
