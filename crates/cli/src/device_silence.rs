//! Whether the device of a run that is followed still answers: said long before the hub gives the run up.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::{RunId, Timestamp, rules::recovery::Recovery};

use crate::output::time;

/// How often a run that says nothing is looked at.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What was said of a device that is silent.
#[derive(Debug, Default)]
pub(crate) struct DeviceSilence {
    was_reported: bool,
}

// === impl DeviceSilence ===

impl DeviceSilence {
    /// What there is to say now, if anything.
    pub(crate) async fn check(&mut self, hub: &HubClient, run: RunId, now: Timestamp) -> Option<String> {
        // A hub that does not answer is another matter, and told elsewhere.
        let run = hub.run(run).await.ok()?;
        let is_away = matches!(run.recovery, Some(Recovery::Unreachable | Recovery::RemoteMissing));
        if std::mem::replace(&mut self.was_reported, is_away) == is_away {
            return None;
        }
        if !is_away {
            return Some("the device is back".to_owned());
        }
        let until = time::relative_or(run.lease_expires_at, now, "soon");
        Some(format!("the device does not answer; unless it comes back, the run is given up {until}"))
    }
}
