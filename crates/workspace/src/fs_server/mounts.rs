//! The mounts of a lease. Each has files open and requests carried out, and keeps both when its connection breaks: the next
//! one continues where it ended, without doing anything twice.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{host::FsHost, incomplete::IncompleteFiles};
use crate::{
    export::{ExportConnection, ExportFile, FileLocks},
    fs_wire::{FsEvent, FsWelcome, VERSION},
};

pub(crate) struct FsMounts {
    /// Those that had a connection, also if they have none now.
    known: Mutex<VecDeque<KnownMount>>,
    /// How many more channels the lease can have.
    channels: Arc<Semaphore>,
}

struct KnownMount {
    number: u64,
    progress: Arc<Mutex<MountProgress>>,
    /// Where its last connection is answered.
    host: Weak<FsHost>,
}

/// Files by the numbers that the client chose for them.
pub(super) type OpenFiles = HashMap<u64, (ExportFile, OwnedSemaphorePermit)>;

/// What programs have locked, by the client's numbers for the file and for the program.
pub(super) type HeldLocks = HashMap<(u64, u64), (FileLocks, OwnedSemaphorePermit)>;

#[derive(Debug, Default)]
pub(super) struct MountProgress {
    pub(super) open: OpenFiles,
    pub(super) locks: HeldLocks,
    pub(super) incomplete: IncompleteFiles,
    /// How many connections it had. The last one counts.
    connections: u64,
    last_request: u32,
    failed: VecDeque<(u32, u32)>,
}

/// One connection's right to a mount.
#[derive(Debug)]
pub(super) struct MountClaim {
    progress: Arc<Mutex<MountProgress>>,
    connection: u64,
}

/// Others are forgotten, those first that are unused for longest.
const MAX_MOUNTS: usize = 8;
/// Each channel has threads and watches folders, of which a system has few. More than the mounts: a broken connection may
/// still be there when the next one comes.
const MAX_CHANNELS: usize = 2 * MAX_MOUNTS;
const LAST_WORD_TIMEOUT: Duration = Duration::from_millis(20);
const LAST_WORD_DELAY: Duration = Duration::from_millis(3);
/// More failures than a client can have requests under way.
const MAX_FAILED: usize = 16 << 10;

// === impl FsMounts ===

impl FsMounts {
    /// One more channel, if the lease can have one.
    pub(super) fn channel(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.channels).try_acquire_owned().ok()
    }

    /// Takes a mount over from its connection before, once that has finished what it is doing. Also returns what
    /// the client has to know.
    pub(super) fn claim(&self, mount: u64, by: ExportConnection, host: &Arc<FsHost>) -> (MountClaim, FsWelcome) {
        let mut mounts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = mounts.iter().position(|known| known.number == mount).and_then(|at| mounts.remove(at));
        let is_known = known.is_some();
        let earlier = known.as_ref().and_then(|known| known.host.upgrade());
        let progress = known.map(|known| known.progress).unwrap_or_default();
        mounts.push_back(KnownMount { number: mount, progress: Arc::clone(&progress), host: Arc::downgrade(host) });
        let forgotten = if mounts.len() > MAX_MOUNTS { mounts.pop_front() } else { None };
        drop(mounts);
        drop(forgotten);
        let mut held = progress.lock().unwrap_or_else(PoisonError::into_inner);
        held.connections += 1;
        let connection = held.connections;
        for (file, _) in held.open.values() {
            file.resume(by);
        }
        let carried_out = is_known.then_some(held.last_request);
        let failed = held.failed.iter().copied().collect();
        drop(held);
        if let Some(earlier) = earlier {
            earlier.supersede();
        }
        (MountClaim { progress, connection }, FsWelcome { version: VERSION, carried_out, failed })
    }

    /// Tells the clients that the lease has ended, so that they needn't find out. Takes only a moment, whatever they do.
    pub(crate) fn say_ended(&self) {
        let mounts = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let hosts: Vec<_> = mounts.iter().filter_map(|mount| mount.host.upgrade()).collect();
        drop(mounts);
        for host in &hosts {
            host.outbox.say_last(FsEvent::Ended.write(), LAST_WORD_TIMEOUT);
        }
        if !hosts.is_empty() {
            // From the SSH library to the socket.
            std::thread::sleep(LAST_WORD_DELAY);
        }
    }

    /// At the end of the lease.
    pub(crate) fn clear(&self) {
        let mounts = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        for KnownMount { progress, .. } in mounts {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            let left = (std::mem::take(&mut progress.open), std::mem::take(&mut progress.locks));
            drop(progress);
            drop(left);
        }
    }
}

impl Default for FsMounts {
    fn default() -> Self {
        Self { known: Mutex::default(), channels: Arc::new(Semaphore::new(MAX_CHANNELS)) }
    }
}

// === impl MountClaim ===

impl MountClaim {
    /// The mount, unless another connection has it now.
    pub(super) fn hold(&self) -> Option<MutexGuard<'_, MountProgress>> {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        Some(progress).filter(|progress| progress.connections == self.connection)
    }
}

// === impl MountProgress ===

impl MountProgress {
    /// A request was carried out. Those that are asked again after an outage have numbers from before.
    pub(super) fn note(&mut self, id: u32, failure: Option<u32>) {
        self.last_request = self.last_request.max(id);
        if let Some(errno) = failure {
            self.failed.push_back((id, errno));
            if self.failed.len() > MAX_FAILED {
                self.failed.pop_front();
            }
        }
    }
}

impl std::fmt::Debug for FsMounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FsMounts").finish_non_exhaustive()
    }
}
