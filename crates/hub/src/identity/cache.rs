//! Recently checked credentials, so that a busy caller costs the store one lookup per second.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{AgentId, KeyId, UserId, secret::SecretHash};
use attache_store::record::StoredCredential;
use tokio::time::Instant;

/// Beyond this, callers are looked up in the store every time.
const CAPACITY: usize = 16_384;

#[derive(Debug)]
pub(crate) struct CredentialCache {
    ttl: Duration,
    known: RwLock<CachedCredentials>,
}

#[derive(Debug, Default)]
struct CachedCredentials {
    entries: HashMap<CredentialLookup, CachedCredential>,
    /// When an entry was last dropped. Answers requested before that may be outdated.
    forgotten_at: Option<Instant>,
}

/// How a credential is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CredentialLookup {
    Secret(SecretHash),
    /// A token names its key.
    Key(KeyId),
}

#[derive(Debug, Clone)]
struct CachedCredential {
    credential: StoredCredential,
    fetched_at: Instant,
}

// === impl CredentialCache ===

impl CredentialCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, known: RwLock::default() }
    }

    pub(crate) fn get(&self, by: CredentialLookup) -> Option<StoredCredential> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entry = known.entries.get(&by)?;
        (entry.fetched_at.elapsed() < self.ttl).then(|| entry.credential.clone())
    }

    /// `asked_at` is when the store was queried. An answer is valid for at most the time to live after that, and not at
    /// all if an entry was dropped since, because it may predate the change.
    pub(crate) fn put(&self, by: CredentialLookup, credential: StoredCredential, asked_at: Instant) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let CachedCredentials { entries, forgotten_at } = &mut *known;
        if forgotten_at.is_some_and(|at| asked_at <= at) {
            return;
        }
        if entries.len() >= CAPACITY && !entries.contains_key(&by) {
            entries.retain(|_, entry| entry.fetched_at.elapsed() < self.ttl);
            if entries.len() >= CAPACITY {
                return;
            }
        }
        entries.insert(by, CachedCredential { credential, fetched_at: asked_at });
    }

    pub(crate) fn forget_agent(&self, of: AgentId) {
        self.forget(|credential| match credential {
            StoredCredential::Runtime { agent, .. } => *agent == of,
            StoredCredential::Key { agent, .. } => *agent == Some(of),
        });
    }

    /// Also drops every session opened with a key, since those of this one have ended too.
    pub(crate) fn forget_key(&self, of: KeyId) {
        self.forget(|credential| {
            is_opened(credential) || matches!(credential, StoredCredential::Key { key, .. } if *key == of)
        });
    }

    /// Drops everything that acts for the user: keys, sessions and their agents' credentials, and every session opened
    /// with a key, which may have been the user's.
    pub(crate) fn forget_user(&self, of: UserId) {
        self.forget(|credential| {
            let (StoredCredential::Key { user, .. } | StoredCredential::Runtime { user, .. }) = credential;
            *user == Some(of) || is_opened(credential)
        });
    }

    pub(crate) fn forget_all(&self) {
        self.forget(|_| true);
    }

    fn forget(&self, matches: impl Fn(&StoredCredential) -> bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.forgotten_at = Some(Instant::now());
        known.entries.retain(|_, entry| !matches(&entry.credential));
    }
}

const fn is_opened(credential: &StoredCredential) -> bool {
    matches!(credential, StoredCredential::Key { opener: Some(_), .. })
}
