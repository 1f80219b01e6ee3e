//! The heartbeat: says that the device is there and which runs it answers for, and hears which ones to stop.

use std::time::Duration;

use attache_client::Backoff;
use attache_protocol::{Timestamp, wire::runtime::HeartbeatRequest};
use tokio_util::sync::CancellationToken;

use crate::{Notice, device::Device, profile::Profiles};

/// The profile's `last_heartbeat_at` is for people; writing it more often would only wear the disk.
const NOTED: Duration = Duration::from_secs(60);

/// Beats until asked to quit or denied. A missed beat is made up for soon, long before the hub gives the device up.
pub(crate) async fn beat(device: &Device, profiles: &Profiles, most: Duration, quit: CancellationToken) {
    let period = period(device.profile.heartbeat_timeout_ms, most);
    let mut backoff = Backoff::new(Duration::from_millis(500), period);
    let mut noted: Option<Timestamp> = None;
    let mut online = false;
    while !quit.is_cancelled() && !device.link.is_denied() {
        let wait = if beat_once(device).await {
            if !std::mem::replace(&mut online, true) {
                device.link.notify(&Notice::Online);
            }
            backoff.reset();
            let now = device.env.now();
            if noted.is_none_or(|noted| now.since(noted) >= NOTED) {
                noted = Some(now);
                note(device, profiles, now).await;
            }
            period
        } else {
            backoff.next(&device.env)
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = quit.cancelled() => {}
            () = device.link.denied() => {}
        }
    }
}

/// A quarter of what the hub allows, so that three beats may get lost.
fn period(timeout_ms: u64, most: Duration) -> Duration {
    Duration::from_millis(timeout_ms / 4).clamp(Duration::from_millis(100), most.max(Duration::from_millis(100)))
}

async fn beat_once(device: &Device) -> bool {
    let request = HeartbeatRequest {
        agent_id: Some(device.profile.agent_id),
        running: Some(device.claims.named()),
        extensions: None,
    };
    match device.hub.heartbeat(&request).await {
        Ok(answer) => {
            device.link.heard();
            for run in answer.cancelled {
                device.claims.stop(run, "the hub cancelled the run");
            }
            true
        }
        Err(error) => {
            device.link.failed(&error);
            false
        }
    }
}

async fn note(device: &Device, profiles: &Profiles, now: Timestamp) {
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
    fn the_period_leaves_room_for_lost_beats() {
        let most = Duration::from_secs(30);
        assert_eq!(period(120_000, most), Duration::from_secs(30));
        assert_eq!(period(8_000, most), Duration::from_secs(2));
        assert_eq!(period(600_000, most), Duration::from_secs(30));
        assert_eq!(period(0, most), Duration::from_millis(100));
    }
}
