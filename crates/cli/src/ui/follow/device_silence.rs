//! Reports when the device of a followed run stops responding, long before its lease expires.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::{RunId, Timestamp, rules::recovery::Recovery};

use crate::{
    text::{ask as text, terms},
    ui::output::time,
};

/// Interval between checks of a silent run.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Whether silence of the device was already reported.
#[derive(Debug, Default)]
pub(crate) struct DeviceSilence {
    was_reported: bool,
}

// === impl DeviceSilence ===

impl DeviceSilence {
    /// Returns a message if the device's state changed.
    pub(crate) async fn check(&mut self, hub: &HubClient, run: RunId, now: Timestamp) -> Option<String> {
        // An unreachable hub is reported elsewhere.
        let run = hub.run(run).await.ok()?;
        let is_away = matches!(run.recovery, Some(Recovery::Unreachable | Recovery::RemoteMissing));
        if std::mem::replace(&mut self.was_reported, is_away) == is_away {
            return None;
        }
        if !is_away {
            return Some(text::device_back().to_owned());
        }
        let until = time::relative_or(run.lease_expires_at, now, terms::soon());
        Some(text::device_silent(until))
    }
}
