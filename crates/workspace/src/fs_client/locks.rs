//! Locks of programs (`fcntl` and `flock`). The host has them, so that they also hold against its own programs and
//! against other mounts. One that is taken is asked for again until it is free.

use std::{
    collections::HashSet,
    fs,
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use fuser::{Errno, ReplyEmpty, ReplyLock};
use nix::libc;

use super::{
    convert::unknown_handle,
    link::OnDisconnect,
    shared::{FsShared, FsState},
    tree::{Invalidation, Origin},
};
use crate::{
    export::{LockKind, LockRange},
    fs_wire::{FsReply, FsRequest, WantedLock},
};

/// Who may have locks at the host, and who waits for one.
#[derive(Default)]
pub(super) struct LockTable {
    /// File and program.
    owners: HashSet<(u64, u64)>,
    waiting: Vec<WaitingLock>,
}

/// Who wants it, and what happens if it is taken.
pub(super) struct LockWaiter {
    pub(super) reply: ReplyEmpty,
    /// The thread that waits for it. `None` doesn't wait.
    pub(super) thread: Option<u32>,
    pub(super) pause: Duration,
}

struct WaitingLock {
    wanted: WantedLock,
    waiter: LockWaiter,
    next: Instant,
}

/// How long a lock that is taken is left alone: twice as long each time.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The kernel's number for a kind of lock. `None` unlocks.
pub(super) fn lock_kind(number: i32) -> Result<Option<LockKind>, Errno> {
    match number {
        libc::F_RDLCK => Ok(Some(LockKind::Shared)),
        libc::F_WRLCK => Ok(Some(LockKind::Exclusive)),
        libc::F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

// === impl LockWaiter ===

impl LockWaiter {
    pub(super) const fn new(reply: ReplyEmpty, thread: Option<u32>) -> Self {
        Self { reply, thread, pause: PAUSES.0 }
    }
}

// === impl FsShared ===

impl FsShared {
    pub(super) fn lock_file(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        wanted: WantedLock,
        waiter: LockWaiter,
    ) {
        let ino = wanted.file;
        if let Err(errno) = self.needs_at_host(&mut state, wanted.handle) {
            return waiter.reply.error(errno);
        }
        // Also if it fails: the answer may get lost, and the host has it.
        state.locks.owners.insert((ino, wanted.owner));
        let this = Arc::clone(self);
        self.ask(
            state,
            |id| FsRequest::Lock { id, wanted }.write(),
            Box::new(move |done| match done {
                Ok(answer) => this.locked(ino, &answer, waiter.reply),
                Err(errno) if errno.code() == Errno::EAGAIN.code() && waiter.thread.is_some() => {
                    let next = Instant::now() + waiter.pause;
                    let waiter = LockWaiter { pause: (waiter.pause * 2).min(PAUSES.1), ..waiter };
                    this.lock().locks.waiting.push(WaitingLock { wanted, waiter, next });
                }
                Err(errno) => waiter.reply.error(unknown_handle(errno)),
            }),
        );
    }

    /// The program has it, once what others may have written before is forgotten. Times are too coarse to tell whether
    /// somebody did.
    fn locked(&self, ino: u64, answer: &FsReply, reply: ReplyEmpty) {
        let mut state = self.lock();
        let mut out = vec![Invalidation::Content(ino)];
        state.tree.drop_content(ino);
        if let Some(entry) = &answer.entry {
            state.tree.apply_attributes(ino, answer.stamp, entry.attributes, Origin::Host, &mut out);
        }
        drop(state);
        self.invalidate(out);
        self.after_invalidations(Box::new(move || reply.ok()));
    }

    /// Unlocks a part. Nobody waits for it: whatever follows reaches the host after it.
    pub(super) fn unlock(&self, state: &mut FsState, (ino, owner): (u64, u64), range: LockRange) {
        let is_owner = if range.is_whole() {
            state.locks.owners.remove(&(ino, owner))
        } else {
            state.locks.owners.contains(&(ino, owner))
        };
        if is_owner {
            let _ = self.link.call(
                OnDisconnect::Resend { path: b"" },
                |id| FsRequest::Unlock { id, file: ino, owner, range }.write(),
                Box::new(|_| {}),
            );
        }
    }

    /// Asks for a lock that is in the way.
    pub(super) fn test_lock(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        wanted: WantedLock,
        reply: ReplyLock,
    ) {
        if let Err(errno) = self.needs_at_host(&mut state, wanted.handle) {
            return reply.error(errno);
        }
        self.ask(
            state,
            |id| FsRequest::TestLock { id, wanted }.write(),
            Box::new(move |done| match done.map(|answer| answer.lock) {
                Ok(None) => reply.locked(0, 0, libc::F_UNLCK, 0),
                // Who has it is known only on the host.
                Ok(Some((range, LockKind::Shared))) => reply.locked(range.start, range.end, libc::F_RDLCK, 0),
                Ok(Some((range, LockKind::Exclusive))) => reply.locked(range.start, range.end, libc::F_WRLCK, 0),
                Err(errno) => reply.error(unknown_handle(errno)),
            }),
        );
    }

    /// Asks again for locks that were taken. Called all the time.
    pub(super) fn retry_locks(self: &Arc<Self>) {
        let mut state = self.lock();
        let now = Instant::now();
        let is_lost = self.link.is_lost();
        let due: Vec<WaitingLock> =
            state.locks.waiting.extract_if(.., |waiting| is_lost || waiting.next <= now).collect();
        drop(state);
        for WaitingLock { wanted, waiter, .. } in due {
            if is_lost {
                waiter.reply.error(Errno::EIO);
            } else if waiter.thread.is_some_and(has_signal) {
                waiter.reply.error(Errno::EINTR);
            } else {
                self.lock_file(self.lock(), wanted, waiter);
            }
        }
    }

    /// A lock needs the file open at the host, also if it is only read.
    fn needs_at_host(self: &Arc<Self>, state: &mut FsState, handle: u64) -> Result<(), Errno> {
        let file = state.files.get(&handle).ok_or(Errno::EBADF)?;
        if file.is_at_host {
            return Ok(());
        }
        if let Some(errno) = file.failure {
            return Err(errno);
        }
        let path = state.tree.path(file.ino).ok_or(Errno::ESTALE)?;
        self.open_at_host(state, handle, &path);
        Ok(())
    }
}

/// Whether a thread should stop waiting. The kernel leaves that to us: a killed program stays until it gets an answer.
fn has_signal(thread: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else { return false };
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        line.and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or(0)
    };
    (signals("SigPnd") | signals("ShdPnd")) & !signals("SigBlk") != 0
}
