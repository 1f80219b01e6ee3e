//! The difference between this device's clock and the hub's, and the conversion of hub times.

use std::time::Duration;

use attache_protocol::Timestamp;
use tokio::{sync::watch, time::timeout};

/// Set by every answered heartbeat.
#[derive(Debug)]
pub(crate) struct HubClock {
    /// How many milliseconds this device's clock is ahead. `None` before the first heartbeat.
    ahead: watch::Sender<Option<i64>>,
}

/// One reading of the hub's clock: taken between `asked` and `answered` on this device's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockReading {
    pub(crate) asked: Timestamp,
    pub(crate) hub: Timestamp,
    pub(crate) answered: Timestamp,
}

/// How long a run waits for the first heartbeat, which is usually in flight already.
const FIRST_HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(2);

const MINUTE: i64 = 60_000;

// === impl HubClock ===

impl HubClock {
    pub(crate) fn new() -> Self {
        Self { ahead: watch::Sender::new(None) }
    }

    /// Stores the reading. Returns how many minutes this device's clock is ahead; `None` below one minute.
    pub(crate) fn set(&self, reading: ClockReading) -> Option<i64> {
        let ahead = reading.ahead();
        self.ahead.send_replace(Some(ahead));
        Some(ahead / MINUTE).filter(|minutes| *minutes != 0)
    }

    /// Converts a time of the hub's clock to this device's clock.
    pub(crate) async fn to_local(&self, at: Timestamp) -> Timestamp {
        let mut ahead = self.ahead.subscribe();
        // The sender lives in `self`, so only the timeout can fail.
        let ahead = match timeout(FIRST_HEARTBEAT_TIMEOUT, ahead.wait_for(Option::is_some)).await {
            Ok(Ok(ahead)) => ahead.unwrap_or(0),
            Ok(Err(_)) | Err(_) => 0,
        };
        Timestamp::from_millis(at.millis().saturating_add(ahead))
    }
}

// === impl ClockReading ===

impl ClockReading {
    /// The smallest difference that explains the reading: a slow answer doesn't prove a wrong clock.
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
    async fn a_hub_time_is_shifted_by_the_clock_difference() {
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
