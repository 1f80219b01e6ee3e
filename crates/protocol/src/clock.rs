//! A clock that can't be set: the time of day at start, advanced by elapsed time.

use std::time::Duration;

use crate::time::Timestamp;

/// The machine's clocks at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineClocks {
    /// The time of day, as set by people and time servers.
    pub wall: Timestamp,
    /// How long the machine has been up, including suspend.
    pub up: Duration,
    /// How long it was awake, counted from an arbitrary moment.
    pub awake: Duration,
}

/// The time of day at start plus elapsed time. If the machine's clock is set and stays that way, it slews by a tenth of
/// elapsed time, so that deadlines shift gradually instead of all at once.
#[derive(Debug)]
pub struct SteadyClock {
    /// The believed boot time, in milliseconds.
    began: Option<i64>,
    /// Since when the machine's clock differs.
    set_at: Option<Duration>,
    /// Up to when that was followed.
    followed: Duration,
}

/// Also counts while the machine sleeps, on Linux only under this name.
#[cfg(all(target_os = "linux", not(attache_portable)))]
const SINCE_BOOT: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(all(target_os = "linux", not(attache_portable))))]
const SINCE_BOOT: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

/// Smaller differences are ignored.
const TOLERANCE: i64 = 1000;
/// A clock that was set more recently is not followed, in case someone corrects a mistake.
const CLOCK_SET_TIMEOUT: Duration = Duration::from_secs(60);
/// Slews by one part in this many.
const SLEW_DIVISOR: i64 = 10;

// === impl MachineClocks ===

impl MachineClocks {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    pub(crate) fn of_machine() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let wall = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        let up = rustix::time::clock_gettime(SINCE_BOOT);
        let up = Duration::try_from(up).unwrap_or_default();
        Self { wall, up, awake: Duration::ZERO }
    }
}

// === impl SteadyClock ===

impl SteadyClock {
    pub const fn new() -> Self {
        Self { began: None, set_at: None, followed: Duration::ZERO }
    }

    pub fn now(&mut self, clocks: MachineClocks) -> Timestamp {
        let says = clocks.wall.millis().saturating_sub(millis(clocks.up));
        let began = *self.began.get_or_insert(says);
        let ahead = says.saturating_sub(began);
        if ahead.abs() <= TOLERANCE {
            self.set_at = None;
        } else {
            let set_at = *self.set_at.get_or_insert(clocks.up);
            let from = self.followed.max(set_at + CLOCK_SET_TIMEOUT);
            let most = millis(clocks.up.saturating_sub(from)) / SLEW_DIVISOR;
            if most > 0 {
                self.followed = clocks.up;
                self.began = Some(began + ahead.clamp(-most, most));
            }
        }
        self.read(clocks)
    }

    /// How far the machine's clock is ahead, if it was set.
    pub(crate) fn set_by(&mut self, clocks: MachineClocks) -> Option<i64> {
        let ahead = clocks.wall.millis().saturating_sub(self.now(clocks).millis());
        (ahead.abs() > TOLERANCE).then_some(ahead)
    }

    pub(crate) fn not_before(&mut self, at: Timestamp, clocks: MachineClocks) {
        let behind = at.millis().saturating_sub(self.now(clocks).millis());
        if behind > 0 {
            self.began = self.began.map(|began| began.saturating_add(behind));
        }
    }

    fn read(&self, clocks: MachineClocks) -> Timestamp {
        Timestamp::from_millis(self.began.unwrap_or(0).saturating_add(millis(clocks.up)))
    }
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 60 * 60 * 1000;

    /// A machine whose clock can be set and advanced.
    struct Machine {
        clocks: MachineClocks,
        steady: SteadyClock,
    }

    impl Machine {
        fn new() -> Self {
            let clocks = MachineClocks { wall: Timestamp::from_millis(100 * DAY), ..MachineClocks::default() };
            let mut steady = SteadyClock::new();
            steady.now(clocks);
            Self { clocks, steady }
        }

        fn wait(&mut self, seconds: u64) -> i64 {
            for _ in 0..seconds {
                self.clocks.up += Duration::from_secs(1);
                self.clocks.wall = self.clocks.wall.plus(Duration::from_secs(1));
                self.steady.now(self.clocks);
            }
            self.steady.now(self.clocks).millis() - 100 * DAY
        }

        fn set(&mut self, by: i64) {
            self.clocks.wall = Timestamp::from_millis(self.clocks.wall.millis() + by);
        }
    }

    #[test]
    fn a_clock_that_was_set_for_a_moment_changes_nothing() {
        for by in [401 * DAY, -401 * DAY, 25 * DAY / 24, 1001] {
            let mut machine = Machine::new();
            machine.set(by);
            assert_eq!(machine.wait(3), 3000);
            assert_eq!(machine.steady.set_by(machine.clocks), Some(by));
            machine.set(-by);
            assert_eq!((machine.wait(100), machine.steady.set_by(machine.clocks)), (103_000, None));
        }
    }

    #[test]
    fn a_clock_that_stays_set_is_followed_slowly_and_never_backwards() {
        for (by, after) in [(3_600_000, 160_000 + 10_000), (-3_600_000, 160_000 - 10_000), (5_000, 165_000)] {
            let mut machine = Machine::new();
            machine.set(by);
            let mut before = 0;
            for _ in 0..160 {
                let now = machine.wait(1);
                assert!((900..=1100).contains(&(now - before)), "{now} after {before}");
                before = now;
            }
            // A difference of a second is ignored.
            assert!((before - after).abs() <= 1000, "{before} {after}");
        }
    }

    #[test]
    fn the_clock_is_never_before_a_known_event() {
        let mut machine = Machine::new();
        machine.steady.not_before(Timestamp::from_millis(100 * DAY + 5_000), machine.clocks);
        assert_eq!(machine.wait(1), 6_000);
        machine.steady.not_before(Timestamp::from_millis(0), machine.clocks);
        assert_eq!(machine.wait(1), 7_000);
    }
}
