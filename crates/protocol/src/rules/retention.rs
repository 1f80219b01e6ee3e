//! What is forgotten after which time, and by which clock: one that a wrong time of day moves only slowly.

use std::time::Duration;

use crate::time::Timestamp;

const MINUTE: i64 = 60_000;

/// How long an idempotency key stands for the run that was made with it, at least.
pub const KEY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// The clock by which things are forgotten, once it is `at` by the caller's clock. It goes in whole minutes, never back, and
/// by no more than `step`. With a step of a minute a second, a hub that was off for a day catches up in half an hour, and
/// one whose clock is a year ahead takes a week to forget what it should have kept.
pub fn clock(before: Option<Timestamp>, at: Timestamp, step: Duration) -> Timestamp {
    let minute = |at: Timestamp| Timestamp::from_millis(at.millis() - at.millis().rem_euclid(MINUTE));
    match before {
        None => minute(at),
        Some(before) => minute(at.min(before.plus(step))).max(before),
    }
}

/// Whether a key that was used then is forgotten. Without a clock nothing is.
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
    fn it_follows_the_time_by_minutes_and_a_leap_step_by_step() {
        let step = Duration::from_secs(60);
        assert_eq!(clock(None, at(7, 59), step), at(7, 0));
        assert_eq!(clock(Some(at(7, 0)), at(7, 59), step), at(7, 0));
        assert_eq!(clock(Some(at(7, 0)), at(8, 0), step), at(8, 0));
        assert_eq!(clock(Some(at(7, 0)), at(600_000, 0), step), at(8, 0));
        assert_eq!(clock(Some(at(7, 0)), at(600_000, 0), 90 * step), at(97, 0));
        assert_eq!(clock(Some(at(7, 0)), at(1, 0), step), at(7, 0));
    }

    #[test]
    fn a_key_lives_a_day_by_that_clock() {
        let day = 24 * 60;
        assert!(!is_key_over(at(0, 0), None));
        assert!(!is_key_over(at(0, 1), Some(at(day, 0))));
        assert!(is_key_over(at(0, 0), Some(at(day, 0))));
    }
}
