//! Who may come in: one key per lease, and the connections that it opened.

use std::{
    collections::HashMap,
    fmt,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::secret::SecretHash;
use russh::keys::PublicKey;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{
    BadKey, Pass,
    key::{hash_of, matches, read_public},
};
use crate::{export::Export, sftp::MAX_HANDLES};

/// The leases that can be used now.
#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Vec<Arc<Lease>>>);

pub(super) struct Lease {
    key: SecretHash,
    pub(super) locator: String,
    pub(super) export: Arc<Export>,
    /// How many more files its connections may hold open.
    pub(super) handles: Arc<Semaphore>,
    /// `None` after the end.
    connections: Mutex<Option<HashMap<u64, Arc<Line>>>>,
}

/// What a connection is cut with.
#[derive(Debug)]
pub(super) struct Line {
    /// Whoever waits on the stream is told.
    pub(super) cut: CancellationToken,
    /// A second handle of the socket, where there is one: the other end is told even while our side is in a file call.
    pub(super) socket: Option<TcpStream>,
}

/// A lease that can be used for as long as this lives.
#[derive(Debug)]
pub struct Admission {
    leases: Arc<Leases>,
    lease: Arc<Lease>,
}

// === impl Leases ===

impl Leases {
    pub(super) fn admit(self: &Arc<Self>, pass: Pass) -> Result<Admission, BadKey> {
        let key = read_public(&pass.key)?;
        if matches!(pass.locator.as_str(), "" | "." | "..") || pass.locator.contains(['/', '\0']) {
            return Err(BadKey::Locator);
        }
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.iter().any(|lease| matches(lease.key, &key)) {
            return Err(BadKey::Taken);
        }
        let lease = Arc::new(Lease {
            key: hash_of(&key),
            locator: pass.locator,
            export: pass.export,
            handles: Arc::new(Semaphore::new(MAX_HANDLES)),
            connections: Mutex::new(Some(HashMap::new())),
        });
        leases.push(Arc::clone(&lease));
        Ok(Admission { leases: Arc::clone(self), lease })
    }

    /// The lease that this key opens. Every key is compared, and each in constant time, so that the answer takes as long
    /// for any wrong key.
    pub(super) fn of(&self, key: &PublicKey) -> Option<Arc<Lease>> {
        let leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.iter().fold(None, |found, lease| if matches(lease.key, key) { Some(Arc::clone(lease)) } else { found })
    }

    fn remove(&self, lease: &Arc<Lease>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, lease));
    }
}

// === impl Lease ===

impl Lease {
    /// Ties a connection to this lease: it is cut with it. `false` when the lease is over, or has `limit` of them.
    pub(super) fn connect(&self, number: u64, line: &Arc<Line>, limit: usize) -> bool {
        match &mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(connections) if connections.len() < limit => {
                connections.insert(number, Arc::clone(line));
                true
            }
            _ => false,
        }
    }

    pub(super) fn disconnect(&self, number: u64) {
        if let Some(connections) = &mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            connections.remove(&number);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

// === impl Line ===

impl Line {
    pub(super) fn cut(&self) {
        self.cut.cancel();
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

// === impl Admission ===

impl Admission {
    /// Ends the lease: its key is refused, its connections are cut, and every call on its export fails. Returns when no
    /// change is under way any more; a file call that is takes a moment, so call it where blocking is allowed.
    pub fn revoke(&self) {
        self.leases.remove(&self.lease);
        let connections = self.lease.connections.lock().unwrap_or_else(PoisonError::into_inner).take();
        for (_, line) in connections.into_iter().flatten() {
            line.cut();
        }
        self.lease.export.revoke();
    }

    /// How many connections the lease has open.
    pub fn connections(&self) -> usize {
        self.lease.connections.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, HashMap::len)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.revoke();
    }
}
