//! Recent names of users and agents: rules use names, and every request of an agent checks them.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{AgentId, UserId};
use tokio::time::Instant;

/// Beyond this, names are looked up in the store every time.
const CAPACITY: usize = 16_384;

#[derive(Debug)]
pub(crate) struct NameCache {
    pub(crate) users: RecentNames<UserId>,
    pub(crate) agents: RecentNames<AgentId>,
}

/// Names cached for a while. A change on this node is forgotten immediately.
#[derive(Debug)]
pub(crate) struct RecentNames<K> {
    ttl: Duration,
    known: RwLock<HashMap<K, (String, Instant)>>,
}

// === impl NameCache ===

impl NameCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { users: RecentNames::new(ttl), agents: RecentNames::new(ttl) }
    }
}

// === impl RecentNames ===

impl<K: Eq + Hash> RecentNames<K> {
    fn new(ttl: Duration) -> Self {
        Self { ttl, known: RwLock::default() }
    }

    pub(crate) fn get(&self, key: &K) -> Option<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (name, asked_at) = known.get(key)?;
        (asked_at.elapsed() < self.ttl).then(|| name.clone())
    }

    /// `asked_at` is when the store was queried.
    pub(crate) fn put(&self, key: K, name: &str, asked_at: Instant) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= CAPACITY && !known.contains_key(&key) {
            known.retain(|_, (_, asked_at)| asked_at.elapsed() < self.ttl);
            if known.len() >= CAPACITY {
                return;
            }
        }
        known.insert(key, (name.to_owned(), asked_at));
    }

    pub(crate) fn forget(&self, key: &K) {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}
