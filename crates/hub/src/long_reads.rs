//! Requests that read many pages of the store take turns, so that they never occupy every thread that reads it, and one
//! caller has one turn at a time.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use attache_protocol::Actor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Fewer than the store has threads for reads.
const MAX_AT_ONCE: usize = 2;

#[derive(Debug)]
pub(crate) struct LongReads {
    turns: Arc<Semaphore>,
    callers: Mutex<HashMap<Actor, Weak<Semaphore>>>,
}

/// Held while reading.
#[derive(Debug)]
pub(crate) struct LongReadTurn {
    _own: Option<OwnedSemaphorePermit>,
    _turn: Option<OwnedSemaphorePermit>,
}

// === impl LongReads ===

impl Default for LongReads {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(MAX_AT_ONCE)), callers: Mutex::default() }
    }
}

impl LongReads {
    /// Waits for the caller's own turn first: whoever asks for many waits behind themselves.
    pub(crate) async fn turn(&self, caller: Actor) -> LongReadTurn {
        let own = self.own_turns(caller).acquire_owned().await.ok();
        LongReadTurn { _own: own, _turn: self.turns.clone().acquire_owned().await.ok() }
    }

    fn own_turns(&self, caller: Actor) -> Arc<Semaphore> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = callers.get(&caller).and_then(Weak::upgrade) {
            return own;
        }
        callers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(1));
        callers.insert(caller, Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn one_caller_has_one_turn_and_leaves_the_other_to_others() {
        let (reads, env) = (LongReads::default(), Env::seeded(1));
        let [ann, ben, cid] = [0; 3].map(|_| Actor::User(env.user_id()));
        let first = reads.turn(ann.clone()).await;
        assert!(reads.turn(ann.clone()).now_or_never().is_none());
        let second = reads.turn(ben).await;
        assert!(reads.turn(cid.clone()).now_or_never().is_none(), "two at once");
        drop(first);
        let third = reads.turn(cid).await;
        drop((second, third));
        drop(reads.turn(ann).await);
        assert!(reads.callers.lock().unwrap().len() <= 3);
    }
}
