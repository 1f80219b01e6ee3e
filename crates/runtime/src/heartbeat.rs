//! The heartbeat: reports that the device is alive and which runs it holds, and learns which ones to stop.

use std::time::Duration;

use attache_client::{Backoff, HubCredential};
use attache_protocol::{Code, RunId, Secret, Timestamp, wire::runtime::HeartbeatRequest};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    RuntimeNotice, RuntimeTimings, clock::ClockReading, device::DeviceRuntime, inbox::ClaimExpectation,
    profile::Profiles, recover,
};

/// `last_heartbeat_at` in the profile is for people. Writing it more often would only wear out the disk.
const PROFILE_WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a channel can take to confirm that everything has arrived.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// The intervals between heartbeats.
#[derive(Debug, Clone, Copy)]
struct HeartbeatSchedule {
    timeout_ms: u64,
    pace: RuntimeTimings,
}

/// Sends heartbeats until asked to stop or denied. A failed heartbeat is repeated soon, long before the hub gives up on
/// the device.
pub(crate) async fn run_heartbeats(
    device: &DeviceRuntime,
    profiles: &Profiles,
    pace: RuntimeTimings,
    quit: CancellationToken,
) {
    let rhythm = HeartbeatSchedule { timeout_ms: device.profile.heartbeat_timeout_ms, pace };
    let mut backoff = Backoff::new(Duration::from_millis(500), rhythm.period(pace.early));
    let (mut returns, mut since) = (device.link.hub_back(), Instant::now());
    let mut noted: Option<Timestamp> = None;
    let mut online = false;
    while !quit.is_cancelled() && !device.link.is_denied() {
        let reached = send_heartbeat(device, profiles).await;
        if returns.has_changed().unwrap_or(false) {
            returns.mark_unchanged();
            since = Instant::now();
        }
        let wait = if reached {
            if !std::mem::replace(&mut online, true) {
                device.link.notify(&RuntimeNotice::Online);
            }
            backoff.reset();
            let now = device.env.now();
            if noted.is_none_or(|noted| now.since(noted) >= PROFILE_WRITE_INTERVAL) {
                noted = Some(now);
                note(device, profiles, now).await;
            }
            rhythm.period(since.elapsed())
        } else {
            backoff.next(&device.env)
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // Another call reached the hub again. Report immediately what is still running here.
            Ok(()) = returns.changed() => since = Instant::now(),
            () = quit.cancelled() => {}
            () = device.link.denied() => {}
        }
    }
}

// === impl HeartbeatSchedule ===

impl HeartbeatSchedule {
    /// A quarter of what the hub allows, so that three heartbeats can get lost. More often at first: the hub spares a
    /// young claim that this device doesn't name, and should not have to until the next regular heartbeat.
    fn period(self, since: Duration) -> Duration {
        let least = Duration::from_millis(100);
        let RuntimeTimings { heartbeat, early_heartbeat, early, .. } = self.pace;
        let most = if since < early { heartbeat.min(early_heartbeat) } else { heartbeat };
        Duration::from_millis(self.timeout_ms / 4).min(most).max(least)
    }
}

/// The runs that this device executes, if it can know: the hub releases every other claim. A claim in flight over the
/// channel must have arrived before the list is made.
async fn running(device: &DeviceRuntime) -> Option<Vec<RunId>> {
    match (device.inbox.expects(), device.channel()) {
        (ClaimExpectation::Nothing, _) | (ClaimExpectation::Perhaps, None) => {}
        (ClaimExpectation::Perhaps, Some(channel)) => timeout(CONFIRM_TIMEOUT, channel.confirm()).await.ok()?.ok()?,
        (ClaimExpectation::Unsure, _) => return None,
        (ClaimExpectation::Overdue, _) => {
            let history = device.ledger.history().await;
            timeout(CONFIRM_TIMEOUT, recover::hand_back(device, &history)).await.ok()?;
            device.inbox.clear_expectation();
        }
    }
    Some(device.claims.named())
}

async fn send_heartbeat(device: &DeviceRuntime, profiles: &Profiles) -> bool {
    let request = HeartbeatRequest {
        agent_id: Some(device.profile.agent_id.to_string()),
        running: running(device).await,
        unreported: device.claims.unreported(),
        extensions: Some(device.declared().await),
        host_sessions: device.adapter.sessions().await,
        token_rotation: true,
    };
    let asked = device.env.now();
    match device.hub().heartbeat(&request).await {
        Ok(answer) => {
            device.link.hub_answered();
            let reading = ClockReading { asked, hub: answer.server_time, answered: device.env.now() };
            let ahead = device.clock.set(reading);
            if device.presence.set_clock(ahead)
                && let Some(ahead_minutes) = ahead
            {
                device.link.notify(&RuntimeNotice::ClockOff { ahead_minutes });
            }
            for run in answer.cancelled {
                device.inbox.question_claim(run);
            }
            if answer.worktree_decisions {
                device.worktree_notice.give();
            }
            if let Some(token) = answer.runtime_token {
                rotate(device, profiles, token).await;
            }
            true
        }
        Err(error) if error.code() == Some(Code::TokenReplaced) => {
            device.link.deny(&error);
            false
        }
        Err(error) => {
            device.link.failed(&error);
            false
        }
    }
}

/// Switches to the token that the hub offers. It is written to disk before use, so that the profile always contains a
/// token that the hub accepts.
async fn rotate(device: &DeviceRuntime, profiles: &Profiles, token: Secret<String>) {
    let (profiles, key, stored) = (profiles.clone(), device.profile.key(), token.clone());
    let written = tokio::task::spawn_blocking(move || {
        profiles.update(|set| match set.profiles.get_mut(&key) {
            Some(profile) => {
                profile.runtime_token = stored;
                true
            }
            // Unpaired in the meantime.
            None => false,
        })
    });
    match written.await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return,
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to store the new runtime token; the current one stays in use");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "the new runtime token was not stored; the current one stays in use");
            return;
        }
    }
    let credential = HubCredential::RuntimeToken(token);
    let renewed = device.hub().renew(&credential).and_then(|()| match device.channel() {
        Some(channel) => channel.renew(&credential),
        None => Ok(()),
    });
    match renewed {
        Ok(()) => tracing::info!("rotated the runtime token"),
        Err(error) => tracing::error!(%error, "can't use the hub's new runtime token"),
    }
}

async fn note(device: &DeviceRuntime, profiles: &Profiles, now: Timestamp) {
    let (profiles, key) = (profiles.clone(), device.profile.key());
    let written = tokio::task::spawn_blocking(move || {
        profiles.update(|set| {
            // The device may have been paired again. Then this profile is gone.
            if let Some(profile) = set.profiles.get_mut(&key) {
                profile.last_heartbeat_at = Some(now);
            }
        })
    });
    match written.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "failed to write the heartbeat time to the profile"),
        Err(error) => tracing::warn!(%error, "failed to write the heartbeat time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_tolerates_lost_heartbeats_and_is_short_at_first() {
        let period = |timeout_ms, since| {
            HeartbeatSchedule { timeout_ms, pace: RuntimeTimings::default() }
                .period(Duration::from_secs(since))
                .as_millis()
        };
        for (timeout_ms, early, later) in
            [(120_000, 5_000, 30_000), (8_000, 2_000, 2_000), (600_000, 5_000, 30_000), (0, 100, 100)]
        {
            let periods = [0, 59, 60].map(|since| period(timeout_ms, since));
            assert_eq!(periods, [early, early, later], "{timeout_ms}");
        }
    }
}
