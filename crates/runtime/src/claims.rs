//! The claims that this device holds: the one that executes, those that wait for it, and those whose outcome the hub
//! has not received yet.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::RunId;

use crate::shutdown::StopSignal;

/// Clones share the same claims.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeldClaims(Arc<Mutex<ClaimsState>>);

#[derive(Debug, Default)]
struct ClaimsState {
    held: BTreeMap<(RunId, i64), HeldClaim>,
    /// Started by an earlier process; their state is unknown.
    abandoned: BTreeSet<(RunId, i64)>,
    /// Recently handed back: a copy of the claim that is still in flight must not be started.
    given_back: VecDeque<(RunId, i64)>,
}

#[derive(Debug, Default)]
struct HeldClaim {
    stop: StopSignal,
    /// It ended here, and the hub may not know that.
    ended: bool,
}

/// How many of those are remembered. Only a few can be in flight.
const MAX_REMEMBERED: usize = 256;

// === impl HeldClaims ===

impl HeldClaims {
    /// Every heartbeat names the run from now on. `None` if the claim was handed back before it arrived.
    pub(crate) fn take(&self, run: RunId, epoch: i64) -> Option<StopSignal> {
        let mut state = self.state();
        if state.given_back.contains(&(run, epoch)) {
            return None;
        }
        Some(state.held.entry((run, epoch)).or_default().stop.clone())
    }

    /// Like `take`, for a claim that arrives. `None` also if it has arrived before.
    pub(crate) fn take_new(&self, run: RunId, epoch: i64) -> Option<StopSignal> {
        let is_held = self.state().held.contains_key(&(run, epoch));
        if is_held { None } else { self.take(run, epoch) }
    }

    /// Whether the claim can be handed back: nothing here holds it or may have started it, and nothing will from now
    /// on.
    pub(crate) fn hand_back(&self, run: RunId, epoch: i64) -> bool {
        let mut state = self.state();
        if state.held.contains_key(&(run, epoch)) || state.abandoned.contains(&(run, epoch)) {
            return false;
        }
        state.remember((run, epoch));
        true
    }

    pub(crate) fn give_up(&self, run: RunId, epoch: i64) {
        let mut state = self.state();
        if state.held.remove(&(run, epoch)).is_some() {
            // A frame that arrives again over another channel must not start it again.
            state.remember((run, epoch));
        }
    }

    /// The outcome is in the ledger.
    pub(crate) fn ended(&self, run: RunId, epoch: i64) {
        self.state().held.entry((run, epoch)).or_default().ended = true;
    }

    /// The hub believes that this device executes the claim. It was started here, but nothing executes it.
    pub(crate) fn abandon(&self, run: RunId, epoch: i64) {
        let mut state = self.state();
        if !state.held.contains_key(&(run, epoch)) {
            state.abandoned.insert((run, epoch));
        }
    }

    /// The claims that a new channel must not put back into the queue: the held ones, and those started earlier. The
    /// latter are lost, which heartbeats report by not naming them, and must not count as undelivered.
    pub(crate) fn started_runs(&self) -> Vec<RunId> {
        let mut runs = self.named();
        runs.extend(self.state().abandoned.iter().map(|(run, _)| *run));
        runs.dedup();
        runs
    }

    pub(crate) fn named(&self) -> Vec<RunId> {
        self.runs(|_| true)
    }

    /// Runs whose outcome the hub has not received.
    pub(crate) fn unreported(&self) -> Vec<RunId> {
        self.runs(|held| held.ended)
    }

    fn runs(&self, wanted: impl Fn(&HeldClaim) -> bool) -> Vec<RunId> {
        let state = self.state();
        let mut runs: Vec<RunId> =
            state.held.iter().filter(|(_, held)| wanted(held)).map(|((run, _), _)| *run).collect();
        runs.dedup();
        runs
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ClaimsState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ClaimsState ===

impl ClaimsState {
    fn remember(&mut self, claim: (RunId, i64)) {
        if !self.given_back.contains(&claim) {
            self.given_back.push_back(claim);
        }
        if self.given_back.len() > MAX_REMEMBERED {
            self.given_back.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    #[test]
    fn a_claim_is_either_held_or_handed_back() {
        let (claims, run) = (HeldClaims::default(), Env::seeded(1).run_id());
        assert!(claims.take_new(run, 1).is_some());
        assert!(claims.take_new(run, 1).is_none(), "it has arrived before");
        assert!(claims.take(run, 1).is_some());
        assert!(!claims.hand_back(run, 1), "it is held");
        assert!(claims.hand_back(run, 2));
        assert!(claims.take(run, 2).is_none(), "it was handed back before it arrived");
        assert!(claims.take(run, 3).is_some());
        assert_eq!(claims.named(), [run], "one run, two claims");
        claims.give_up(run, 1);
        assert!(claims.take_new(run, 1).is_none(), "it is over");
        claims.ended(run, 3);
        assert_eq!((claims.named(), claims.unreported()), (vec![run], vec![run]));
        let lost = Env::seeded(2).run_id();
        claims.abandon(run, 3);
        claims.abandon(lost, 1);
        assert_eq!((claims.named(), claims.started_runs()), (vec![run], vec![run, lost]));
        assert!(!claims.hand_back(lost, 1), "it may have begun");
        assert!(claims.hand_back(lost, 2), "another claim of the same run did not");
    }
}
