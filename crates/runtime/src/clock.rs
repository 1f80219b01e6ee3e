//! How this device's clock stands to the hub's, and what a time of the hub is here.

use std::time::Duration;

use attache_protocol::Timestamp;
use tokio::{sync::watch, time::timeout};

/// Each answered heartbeat sets it.
#[derive(Debug)]
pub(crate) struct HubClock {
    /// By how many milliseconds this device's clock is ahead; none before the first heartbeat.
    ahead: watch::Sender<Option<i64>>,
}

/// The hub read its clock between the moments, by this device's clock, when it was asked and when it answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    pub(crate) asked: Timestamp,
    pub(crate) hub: Timestamp,
    pub(crate) answered: Timestamp,
}

/// How long a run waits for the first heartbeat, which is on its way when there is work.
const FIRST_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

const MINUTE: i64 = 60_000;

// === impl HubClock ===

impl HubClock {
    pub(crate) fn new() -> Self {
        Self { ahead: watch::Sender::new(None) }
    }

    /// By how many minutes this device's clock is ahead; none when it is right, for less is nobody's concern.
    pub(crate) fn set(&self, reading: ClockReading) -> Option<i64> {
        let ahead = reading.ahead();
        self.ahead.send_replace(Some(ahead));
        Some(ahead / MINUTE).filter(|minutes| *minutes != 0)
    }

    /// A moment of the hub's clock, by this device's.
    pub(crate) async fn to_local(&self, at: Timestamp) -> Timestamp {
        let mut ahead = self.ahead.subscribe();
        // The sender lives in `self`, so only the time can run out.
        let ahead = match timeout(FIRST_HEARTBEAT_TIMEOUT, ahead.wait_for(Option::is_some)).await {
            Ok(Ok(ahead)) => ahead.unwrap_or(0),
            Ok(Err(_)) | Err(_) => 0,
        };
        Timestamp::from_millis(at.millis().saturating_add(ahead))
    }
}

// === impl ClockReading ===

impl ClockReading {
    /// The least difference that explains it: a slow answer is no proof of a wrong clock.
    const fn ahead(self) -> i64 {
        let Self { asked, hub, answered } = self;
        if hub.millis() < asked.millis() {
            asked.millis().saturating_sub(hub.millis())
        } else if hub.millis() > answered.millis() {
            answered.millis().saturating_sub(hub.millis())
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 60 * MINUTE;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(HOUR + millis)
    }

    #[tokio::test]
    async fn a_time_of_the_hub_is_moved_by_what_the_clocks_differ() {
        for (hub, ahead, minutes) in [
            (100, 0, None),
            (130, 0, None),
            (200, 0, None),
            (201, -1, None),
            (100 - HOUR, HOUR, Some(60)),
            (200 + HOUR, -HOUR, Some(-60)),
        ] {
            let clock = HubClock::new();
            assert_eq!(clock.set(ClockReading { asked: at(100), hub: at(hub), answered: at(200) }), minutes);
            assert_eq!(clock.to_local(at(7)).await, at(7 + ahead));
        }
    }
}
