//! Authentication: one key per lease, and the connections that it opened.

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
    InvalidLeaseKey, LeaseAccess,
    key::{hash_of, matches, read_public},
};
use crate::{export::Export, fs_server::FsMounts, sftp::MAX_HANDLES};

/// The leases that can be used now.
#[derive(Debug, Default)]
pub(super) struct ActiveLeases(Mutex<Vec<Arc<ActiveLease>>>);

pub(super) struct ActiveLease {
    key: SecretHash,
    pub(super) locator: String,
    pub(super) export: Arc<Export>,
    /// How many more files its connections can open.
    pub(super) handles: Arc<Semaphore>,
    /// What attache-fs keeps from one connection to the next.
    pub(super) mounts: Arc<FsMounts>,
    /// `None` after the end.
    connections: Mutex<Option<HashMap<u64, Arc<ConnectionCutter>>>>,
}

/// Closes a connection.
#[derive(Debug)]
pub(super) struct ConnectionCutter {
    /// Wakes whoever waits on the stream.
    pub(super) cut: CancellationToken,
    /// A second handle of the socket, if there is one: it closes the connection even while our side is in a file
    /// operation.
    pub(super) socket: Option<TcpStream>,
}

/// Keeps a lease usable for as long as it lives.
#[derive(Debug)]
pub struct LeaseAdmission {
    leases: Arc<ActiveLeases>,
    lease: Arc<ActiveLease>,
}

// === impl ActiveLeases ===

impl ActiveLeases {
    pub(super) fn admit(self: &Arc<Self>, pass: LeaseAccess) -> Result<LeaseAdmission, InvalidLeaseKey> {
        let key = read_public(&pass.key)?;
        if matches!(pass.locator.as_str(), "" | "." | "..") || pass.locator.contains(['/', '\0']) {
            return Err(InvalidLeaseKey::Locator);
        }
        let mut leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if leases.iter().any(|lease| matches(lease.key, &key)) {
            return Err(InvalidLeaseKey::Taken);
        }
        let lease = Arc::new(ActiveLease {
            key: hash_of(&key),
            locator: pass.locator,
            export: pass.export,
            handles: Arc::new(Semaphore::new(MAX_HANDLES)),
            mounts: Arc::default(),
            connections: Mutex::new(Some(HashMap::new())),
        });
        leases.push(Arc::clone(&lease));
        Ok(LeaseAdmission { leases: Arc::clone(self), lease })
    }

    /// The lease that this key opens. All keys are compared, each in constant time, so that every wrong key takes the
    /// same time.
    pub(super) fn of(&self, key: &PublicKey) -> Option<Arc<ActiveLease>> {
        let leases = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        leases.iter().fold(None, |found, lease| if matches(lease.key, key) { Some(Arc::clone(lease)) } else { found })
    }

    fn remove(&self, lease: &Arc<ActiveLease>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, lease));
    }
}

// === impl ActiveLease ===

impl ActiveLease {
    /// Ties a connection to this lease, so that both end together. `false` if the lease has ended, or has `limit`
    /// connections.
    pub(super) fn connect(&self, number: u64, cutter: &Arc<ConnectionCutter>, limit: usize) -> bool {
        match &mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(connections) if connections.len() < limit => {
                connections.insert(number, Arc::clone(cutter));
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

impl fmt::Debug for ActiveLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}

// === impl ConnectionCutter ===

impl ConnectionCutter {
    pub(super) fn cut(&self) {
        self.cut.cancel();
        if let Some(socket) = &self.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

// === impl LeaseAdmission ===

impl LeaseAdmission {
    /// Ends the lease: its key is refused, its connections are closed, and every call on its export fails. Returns when
    /// no change is in progress any more. A file operation takes a moment to finish, so call it where blocking is
    /// allowed.
    pub fn revoke(&self) {
        self.leases.remove(&self.lease);
        let connections = self.lease.connections.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.lease.export.refuse();
        if connections.is_some() {
            self.lease.mounts.say_ended();
        }
        for (_, cutter) in connections.into_iter().flatten() {
            cutter.cut();
        }
        self.lease.export.revoke();
        self.lease.mounts.clear();
    }

    /// How many connections the lease has open.
    pub fn connections(&self) -> usize {
        self.lease.connections.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, HashMap::len)
    }
}

impl Drop for LeaseAdmission {
    fn drop(&mut self) {
        self.revoke();
    }
}
