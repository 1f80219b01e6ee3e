//! Pauses deliveries to a target that failed several times in a row, then probes it until a probe succeeds.

use std::{collections::HashMap, time::Duration};

use attache_protocol::Timestamp;

/// When to pause a target, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Failures in a row.
    pub failures: u32,
    pub pause: Duration,
}

/// Only targets whose last call failed.
#[derive(Debug)]
pub(super) struct CircuitBreakers {
    circuit_policy: CircuitPolicy,
    failing: HashMap<String, CircuitBreaker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CircuitBreaker {
    failures: u32,
    /// When it failed last.
    failed_at: Timestamp,
    /// A probe is in progress.
    is_probed: bool,
}

/// How many failing targets are remembered. The one that failed longest ago is dropped first.
const MAX_CIRCUITS: usize = 4096;

// === impl CircuitPolicy ===

impl Default for CircuitPolicy {
    fn default() -> Self {
        Self { failures: 5, pause: Duration::from_secs(60) }
    }
}

// === impl CircuitBreakers ===

impl CircuitBreakers {
    pub(super) fn new(circuit_policy: CircuitPolicy) -> Self {
        Self { circuit_policy, failing: HashMap::new() }
    }

    /// Whether the target may be called now. An admitted call must be followed by its outcome.
    pub(super) fn admit(&mut self, target: &str, now: Timestamp) -> bool {
        if self.is_paused(target, now) {
            return false;
        }
        let Some(circuit) = self.failing.get_mut(target) else { return true };
        if circuit.failures < self.circuit_policy.failures {
            return true;
        }
        !std::mem::replace(&mut circuit.is_probed, true)
    }

    /// Whether the target failed so recently that it isn't even probed.
    pub(super) fn is_paused(&self, target: &str, now: Timestamp) -> bool {
        self.failing.get(target).is_some_and(|circuit| {
            circuit.failures >= self.circuit_policy.failures && now < circuit.failed_at.plus(self.circuit_policy.pause)
        })
    }

    pub(super) fn succeeded(&mut self, target: &str) {
        self.failing.remove(target);
    }

    pub(super) fn failed(&mut self, target: &str, at: Timestamp) {
        if !self.failing.contains_key(target) && self.failing.len() >= MAX_CIRCUITS {
            let oldest = self.failing.iter().min_by_key(|(_, circuit)| circuit.failed_at).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.failing.remove(&oldest);
            }
        }
        let failures = self.failing.get(target).map_or(0, |circuit| circuit.failures);
        let circuit = CircuitBreaker { failures: failures.saturating_add(1), failed_at: at, is_probed: false };
        self.failing.insert(target.to_owned(), circuit);
    }

    /// Whether the call that was just admitted is a probe.
    pub(super) fn is_probed(&self, target: &str) -> bool {
        self.failing.get(target).is_some_and(|circuit| circuit.is_probed)
    }

    pub(super) fn is_failing(&self, target: &str) -> bool {
        self.failing.contains_key(target)
    }

    /// The failures in a row that all nodes have seen, each with its target, take the place of what this one remembers.
    pub(super) fn learn(&mut self, failures: impl Iterator<Item = (String, Timestamp)>) {
        let mut failing: HashMap<String, CircuitBreaker> = HashMap::new();
        for (target, at) in failures {
            let is_probed = self.is_probed(&target);
            let circuit = failing.entry(target).or_insert(CircuitBreaker { failures: 0, failed_at: at, is_probed });
            circuit.failures += 1;
            circuit.failed_at = circuit.failed_at.max(at);
        }
        self.failing = failing;
    }

    /// Nothing was learned about the target.
    pub(super) fn unknown(&mut self, target: &str) {
        if let Some(circuit) = self.failing.get_mut(target) {
            circuit.is_probed = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn a_failing_target_is_paused_and_then_probed_once() {
        let mut circuits = CircuitBreakers::new(CircuitPolicy { failures: 2, pause: Duration::from_secs(60) });
        circuits.failed("a", at(0));
        assert!(circuits.admit("a", at(1)) && circuits.admit("a", at(1)), "one failure is an accident");
        circuits.failed("a", at(2));
        assert!(!circuits.admit("a", at(61)));
        assert!(circuits.admit("b", at(61)), "another target");
        assert!(circuits.admit("a", at(62)));
        assert!(!circuits.admit("a", at(62)), "one probe at a time");
        circuits.failed("a", at(63));
        assert!(!circuits.admit("a", at(122)));
        assert!(circuits.admit("a", at(123)));
        circuits.unknown("a");
        assert!(circuits.admit("a", at(123)), "the probe was inconclusive, so there is another");
        circuits.succeeded("a");
        assert!(circuits.admit("a", at(123)) && circuits.admit("a", at(123)));
        assert_eq!(circuits.failing.len(), 0);
    }

    #[test]
    fn failures_that_other_nodes_saw_count() {
        let mut circuits = CircuitBreakers::new(CircuitPolicy { failures: 2, pause: Duration::from_secs(60) });
        let failure = |target: &str, seconds| (target.to_owned(), at(seconds));
        circuits.learn([failure("a", 0), failure("b", 1), failure("a", 2)].into_iter());
        assert!(!circuits.admit("a", at(61)) && circuits.admit("b", at(61)));
        assert!(circuits.admit("a", at(62)) && circuits.is_probed("a"));
        circuits.learn([failure("a", 0), failure("a", 2)].into_iter());
        assert!(!circuits.admit("a", at(62)), "this node's probe is still under way");
        circuits.learn([failure("a", 0), failure("a", 63)].into_iter());
        circuits.unknown("a");
        assert!(!circuits.admit("a", at(122)) && circuits.admit("a", at(123)));
        circuits.learn([].into_iter());
        assert!(!circuits.is_failing("a") && circuits.admit("a", at(63)), "a call at another node succeeded");
    }

    #[test]
    fn the_number_of_remembered_targets_is_bounded() {
        let mut circuits = CircuitBreakers::new(CircuitPolicy { failures: 1, pause: Duration::from_secs(60) });
        for number in 0..=i64::try_from(MAX_CIRCUITS).unwrap() {
            circuits.failed(&number.to_string(), at(number));
        }
        assert_eq!(circuits.failing.len(), MAX_CIRCUITS);
        assert!(circuits.admit("0", at(0)) && !circuits.admit("1", at(1)));
    }
}
