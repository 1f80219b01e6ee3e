//! What is removed when, and by which clock: one that a wrong time of day moves only slowly.

use std::time::Duration;

use crate::time::Timestamp;

const MINUTE: i64 = 60_000;

/// The minimum time an idempotency key maps to its run.
pub const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The retention clock when the caller's clock reads `at`. It moves in full minutes, never back, and by at most `step`.
/// With a step of a minute per second, a hub that was off for a day catches up in half an hour, and one whose clock is
/// a year ahead takes a week to remove what it should have kept.
pub fn clock(before: Option<Timestamp>, at: Timestamp, step: Duration) -> Timestamp {
    let minute = |at: Timestamp| Timestamp::from_millis(at.millis() - at.millis().rem_euclid(MINUTE));
    match before {
        None => minute(at),
        Some(before) => minute(at.min(before.plus(step))).max(before),
    }
}

/// Whether a key used at that time has expired. Without a clock, none has.
pub fn is_key_over(used: Timestamp, clock: Option<Timestamp>) -> bool {
    clock.is_some_and(|clock| clock >= used.plus(KEY_TTL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64, seconds: i64) -> Timestamp {
        Timestamp::from_millis(minutes * MINUTE + seconds * 1000)
    }

    #[test]
    fn the_clock_follows_in_minutes_and_a_leap_in_steps() {
        let step = Duration::from_secs(60);
        assert_eq!(clock(None, at(7, 59), step), at(7, 0));
        assert_eq!(clock(Some(at(7, 0)), at(7, 59), step), at(7, 0));
        assert_eq!(clock(Some(at(7, 0)), at(8, 0), step), at(8, 0));
        assert_eq!(clock(Some(at(7, 0)), at(600_000, 0), step), at(8, 0));
        assert_eq!(clock(Some(at(7, 0)), at(600_000, 0), 90 * step), at(97, 0));
        assert_eq!(clock(Some(at(7, 0)), at(1, 0), step), at(7, 0));
    }

    #[test]
    fn a_key_expires_after_a_day() {
        let day = 24 * 60;
        assert!(!is_key_over(at(0, 0), None));
        assert!(!is_key_over(at(0, 1), Some(at(day, 0))));
        assert!(is_key_over(at(0, 0), Some(at(day, 0))));
    }
}
