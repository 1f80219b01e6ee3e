//! The heartbeat: says that the device is there and which runs it answers for, and hears which ones to stop.

use std::time::Duration;

use attache_client::{Backoff, HubCredential};
use attache_protocol::{Code, RunId, Secret, Timestamp, wire::runtime::HeartbeatRequest};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    Notice, RuntimeTimings, clock::ClockReading, device::DeviceRuntime, inbox::ClaimExpectation, profile::Profiles,
    recover,
};

/// The profile's `last_heartbeat_at` is for people; writing it more often would only wear the disk.
const PROFILE_WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// How long a line may take to prove that everything has arrived.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait between beats.
#[derive(Debug, Clone, Copy)]
struct HeartbeatSchedule {
    timeout_ms: u64,
    pace: RuntimeTimings,
}

/// Beats until asked to quit or denied. A missed beat is made up for soon, long before the hub gives the device up.
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
        let heard = send_heartbeat(device, profiles).await;
        if returns.has_changed().unwrap_or(false) {
            returns.mark_unchanged();
            since = Instant::now();
        }
        let wait = if heard {
            if !std::mem::replace(&mut online, true) {
                device.link.notify(&Notice::Online);
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
            // Another call found the hub again: it wants to know at once what is still running here.
            Ok(()) = returns.changed() => since = Instant::now(),
            () = quit.cancelled() => {}
            () = device.link.denied() => {}
        }
    }
}

// === impl HeartbeatSchedule ===

impl HeartbeatSchedule {
    /// A quarter of what the hub allows, so that three beats may get lost. At first more often: a young claim that this
    /// device does not name is spared by the hub, and should not stay so until the next beat of the usual period.
    fn period(self, since: Duration) -> Duration {
        let least = Duration::from_millis(100);
        let RuntimeTimings { heartbeat, early_heartbeat, early, .. } = self.pace;
        let most = if since < early { heartbeat.min(early_heartbeat) } else { heartbeat };
        Duration::from_millis(self.timeout_ms / 4).min(most).max(least)
    }
}

/// What this device executes, if it can know: the hub gives up every other claim. A claim that may be on its way over
/// the channel must have arrived before the list is made.
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
        agent_id: Some(device.profile.agent_id),
        running: running(device).await,
        unreported: device.claims.unreported(),
        extensions: Some(device.declared().await),
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
                device.link.notify(&Notice::ClockOff { ahead_minutes });
            }
            for run in answer.cancelled {
                device.inbox.question_claim(run);
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

/// Takes the token that the hub offers. It is on disk before it is used: whatever happens between, the profile holds a token
/// that the hub takes.
async fn rotate(device: &DeviceRuntime, profiles: &Profiles, token: Secret<String>) {
    let (profiles, key, kept) = (profiles.clone(), device.profile.key(), token.clone());
    let written = tokio::task::spawn_blocking(move || {
        profiles.update(|set| match set.profiles.get_mut(&key) {
            Some(profile) => {
                profile.runtime_token = kept;
                true
            }
            // Unpaired meanwhile.
            None => false,
        })
    });
    match written.await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return,
        Ok(Err(error)) => {
            tracing::warn!(%error, "the new runtime token cannot be stored; the present one stays in use");
            return;
        }
        Err(error) => {
            tracing::warn!(%error, "the new runtime token was not stored; the present one stays in use");
            return;
        }
    }
    let credential = HubCredential::RuntimeToken(token);
    let renewed = device.hub().renew(&credential).and_then(|()| match device.channel() {
        Some(channel) => channel.renew(&credential),
        None => Ok(()),
    });
    match renewed {
        Ok(()) => tracing::info!("the runtime token was rotated"),
        Err(error) => tracing::error!(%error, "the hub's new runtime token cannot be sent"),
    }
}

async fn note(device: &DeviceRuntime, profiles: &Profiles, now: Timestamp) {
    let (profiles, key) = (profiles.clone(), device.profile.key());
    let written = tokio::task::spawn_blocking(move || {
        profiles.update(|set| {
            // The device may have been paired again meanwhile; then this profile is gone.
            if let Some(profile) = set.profiles.get_mut(&key) {
                profile.last_heartbeat_at = Some(now);
            }
        })
    });
    match written.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the time of the heartbeat cannot be noted in the profile"),
        Err(error) => tracing::warn!(%error, "the time of the heartbeat was not noted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_leaves_room_for_lost_beats_and_is_short_at_first() {
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
