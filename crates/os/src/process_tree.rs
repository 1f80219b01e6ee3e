//! Finds the processes of a run by their ancestry, wherever they moved and whatever they are called.
//!
//! The process that a run starts inherits every orphan below it, so everything the run started is below that process
//! while it lives. A dedicated adapter process inherits what is left when that process ends: any child that it did not
//! start itself belongs to an ended run.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::process::{Pid, WaitOptions, getpid, waitpid};
use tokio::process::{Child, Command};

use crate::system::{machine, processes};

/// Children that this process started itself and hasn't waited for.
static STARTED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Whether this process inherits the orphans of runs and must end all of them.
static ADOPTS: AtomicBool = AtomicBool::new(false);

/// A process and its start time, because pids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub(crate) id: Pid,
    pub(crate) began: u64,
}

/// A child that is not mistaken for an orphan.
#[derive(Debug)]
pub struct OwnChild(std::process::Child);

/// One process as the system reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) parent: i32,
    pub(crate) began: u64,
    pub(crate) is_dead: bool,
}

/// Makes every process that a run leaves behind a child of this one, to be ended with the run. Only for a process that
/// is solely an adapter: anything else it started would be ended as well.
pub fn adopt_orphans() -> io::Result<()> {
    ADOPTS.store(machine::inherit_orphans()?, Ordering::Release);
    Ok(())
}

/// Marks all inherited descriptors beyond the standard streams as close-on-exec, so that started programs don't get
/// them. Call it at the start of the program, before anything is opened.
#[allow(unsafe_code, reason = "the system has just listed these descriptors, and they are only marked")]
pub fn keep_inherited_descriptors() {
    let listed = std::fs::read_dir("/proc/self/fd").or_else(|_| std::fs::read_dir("/dev/fd"));
    let numbers: Vec<RawFd> =
        listed.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: the number is not -1. If the descriptor was closed since, like that of the listing itself, the call
        // just fails.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC);
    }
}

/// Starts a child that inherits the orphans below it. Descriptors that are passed on stay open in it, under the same
/// numbers. With the entrance of a control group, it is in that group before it is another program.
#[allow(
    unsafe_code,
    reason = "a few system calls between fork and exec; all are safe to make there, and nothing is allocated"
)]
pub(crate) fn spawn(command: &mut Command, handed: Vec<Arc<OwnedFd>>, entrance: Option<OwnedFd>) -> io::Result<Child> {
    // SAFETY: between fork and exec, only async-signal-safe work is allowed, because another thread may have held any
    // lock. The closure makes only the system calls getpid, prctl, write and fcntl: it takes no lock, allocates nothing (an
    // error is a number), and drops nothing, because its captures stay with the command. The descriptors are open: the
    // closure owns a share of each.
    unsafe {
        command.pre_exec(move || {
            machine::inherit_orphans()?;
            if let Some(entrance) = &entrance {
                rustix::io::write(entrance, b"0")?;
            }
            for handed in &handed {
                rustix::io::fcntl_setfd(handed.as_fd(), rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
    start(command)
}

/// Starts a child of this process, which must not be mistaken for an orphan.
pub fn start(command: &mut Command) -> io::Result<Child> {
    start_with(|| command.spawn(), Child::id)
}

/// Like [`start`], for code that waits on its own thread. The child is forgotten when this is dropped, so wait for it first.
pub fn start_blocking(command: &mut std::process::Command) -> io::Result<OwnChild> {
    start_with(|| command.spawn(), |child| Some(child.id())).map(OwnChild)
}

/// Locked until the child is recorded, so that an unrecorded one is never seen.
fn start_with<C>(spawn: impl FnOnce() -> io::Result<C>, id: impl FnOnce(&C) -> Option<u32>) -> io::Result<C> {
    let mut started = started();
    let child = spawn()?;
    started.extend(id(&child).and_then(|id| i32::try_from(id).ok()));
    Ok(child)
}

/// Forgets a child that was waited for.
pub fn forget(child: Pid) {
    started().remove(&child.as_raw_nonzero().get());
}

/// All current descendants of a process.
pub fn below(process: Pid) -> Vec<ProcessIdentity> {
    descendants(&processes::all(), [process.as_raw_nonzero().get()])
}

/// Kills these with all their descendants, and the leftovers of ended runs. Returns whether any was alive.
pub fn kill(relatives: &[ProcessIdentity]) -> bool {
    let started = started();
    let all = processes::all();
    let own = getpid().as_raw_nonzero().get();
    let mut found: Vec<ProcessIdentity> = relatives
        .iter()
        .copied()
        .filter(|one| all.get(&raw(one.id)).is_some_and(|stat| stat.began == one.began))
        .collect();
    if ADOPTS.load(Ordering::Acquire) {
        let orphans = all.iter().filter(|(id, stat)| stat.parent == own && !started.contains(id));
        found.extend(
            orphans.filter_map(|(id, stat)| Some(ProcessIdentity { id: Pid::from_raw(*id)?, began: stat.began })),
        );
    }
    found.extend(descendants(&all, found.iter().map(|one| raw(one.id)).collect::<Vec<_>>()));
    drop(started);
    let mut any_alive = false;
    for one in found {
        let Some(stat) = all.get(&raw(one.id)) else { continue };
        // Only this process reaps orphans. The pid of a reaped one may already be reused.
        let is_gone = stat.parent == own && matches!(waitpid(Some(one.id), WaitOptions::NOHANG), Ok(Some(_)));
        if !stat.is_dead && !is_gone {
            any_alive = true;
            processes::kill(one);
        }
    }
    any_alive
}

// === impl OwnChild ===

impl std::ops::Deref for OwnChild {
    type Target = std::process::Child;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::ops::DerefMut for OwnChild {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for OwnChild {
    fn drop(&mut self) {
        forget(Pid::from_child(&self.0));
    }
}

fn raw(id: Pid) -> i32 {
    id.as_raw_nonzero().get()
}

fn started() -> MutexGuard<'static, BTreeSet<i32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descendants(all: &BTreeMap<i32, ProcessStat>, of: impl IntoIterator<Item = i32>) -> Vec<ProcessIdentity> {
    let mut found: Vec<ProcessIdentity> = Vec::new();
    let mut parents: Vec<i32> = of.into_iter().collect();
    let mut seen: BTreeSet<i32> = parents.iter().copied().collect();
    while let Some(parent) = parents.pop() {
        for (id, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            if seen.insert(*id) {
                parents.push(*id);
                found.extend(Pid::from_raw(*id).map(|pid| ProcessIdentity { id: pid, began: stat.began }));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_at_any_depth() {
        let stat = |parent| ProcessStat { parent, began: 1, is_dead: false };
        let all = BTreeMap::from([(2, stat(1)), (3, stat(2)), (4, stat(3)), (5, stat(1))]);
        let mut found: Vec<i32> = descendants(&all, [2]).iter().map(|one| raw(one.id)).collect();
        found.sort_unstable();
        assert_eq!(found, [3, 4]);
    }
}
