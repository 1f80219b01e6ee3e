//! Sessions: reports once when the last delegation of a session has ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use attache_protocol::{DelegationId, wire::delegation::DelegationSession};
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(super) struct SessionTracker(Mutex<BTreeMap<String, SessionDelegations>>);

#[derive(Debug)]
struct SessionDelegations {
    pending: BTreeSet<DelegationId>,
    ended: Vec<DelegationId>,
    /// How many times all delegations of the session had ended.
    rounds: watch::Sender<u64>,
}

/// Above this number, sessions with nothing pending are forgotten.
const MAX_SESSIONS: usize = 1000;

// === impl SessionTracker ===

impl SessionTracker {
    pub(super) fn begin(&self, session: &str, delegation: DelegationId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SESSIONS {
            all.retain(|_, state| !state.pending.is_empty() || state.rounds.receiver_count() > 0);
        }
        let state = all.entry(session.to_owned()).or_default();
        if state.pending.is_empty() {
            state.ended.clear();
        }
        state.pending.insert(delegation);
    }

    /// Returns the session if this was its last pending delegation. That happens once per round.
    pub(super) fn end(&self, session: &str, delegation: DelegationId) -> Option<DelegationSession> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = all.get_mut(session)?;
        if !state.pending.remove(&delegation) {
            return None;
        }
        state.ended.push(delegation);
        if !state.pending.is_empty() {
            return None;
        }
        state.rounds.send_modify(|rounds| *rounds += 1);
        Some(state.show(session))
    }

    pub(super) fn get(&self, session: &str) -> DelegationSession {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session.to_owned()).or_default().show(session)
    }

    /// Waits until the number of rounds exceeds `after`.
    pub(super) async fn wait(&self, session: &str, after: u64) -> DelegationSession {
        let mut rounds = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(session.to_owned()).or_default().rounds.subscribe()
        };
        // The sender is dropped only when the session was forgotten, and then nothing is pending.
        let _ = rounds.wait_for(|rounds| *rounds > after).await;
        self.get(session)
    }
}

// === impl SessionDelegations ===

impl SessionDelegations {
    fn show(&self, session: &str) -> DelegationSession {
        DelegationSession {
            session_id: session.to_owned(),
            pending: self.pending.iter().copied().collect(),
            ended: self.ended.clone(),
            all_done: self.pending.is_empty() && !self.ended.is_empty(),
            rounds: *self.rounds.borrow(),
        }
    }
}

impl Default for SessionDelegations {
    fn default() -> Self {
        Self { pending: BTreeSet::new(), ended: Vec::new(), rounds: watch::Sender::new(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_done_is_reported_once_per_round() {
        let sessions = SessionTracker::default();
        let id = |number: u128| -> DelegationId { format!("dlg_{number:032x}").parse().unwrap() };
        sessions.begin("s", id(1));
        sessions.begin("s", id(2));
        assert_eq!(sessions.end("s", id(1)), None);
        assert_eq!(sessions.end("s", id(1)), None);
        assert_eq!(sessions.end("other", id(2)), None);
        let done = sessions.end("s", id(2)).unwrap();
        assert_eq!((done.ended.clone(), done.all_done, done.rounds), (vec![id(1), id(2)], true, 1));
        assert_eq!(sessions.wait("s", 0).await, done);
        sessions.begin("s", id(3));
        let busy = sessions.get("s");
        assert_eq!((busy.pending, busy.ended, busy.all_done, busy.rounds), (vec![id(3)], vec![], false, 1));
        assert_eq!(sessions.end("s", id(3)).unwrap().rounds, 2);
    }
}
