//! What every Unix tells about the machine and its processes: not much.

use std::{io, os::unix::net::SocketAddr, path::PathBuf};

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

/// Whether there can be control groups.
pub(crate) const HAS_CONTROL_GROUPS: bool = false;

/// The machine's memory in bytes.
pub(crate) const fn memory() -> Option<u64> {
    None
}

/// The address of a socket that has a name, but no file.
pub(crate) fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Makes every process that is orphaned below this one a child of it. Returns whether the system can do that. Safe to
/// call between fork and exec.
pub fn inherit_orphans() -> io::Result<bool> {
    Ok(false)
}

/// Whether this process was started so that it survives the end of its terminal, as with `nohup`. Nobody tells, so it
/// may have been.
pub const fn ignores_hang_up() -> bool {
    true
}

/// Keeps other processes of the user from reading the memory and the open files of this one.
pub const fn protect_memory() {}

/// The parent of a process, and its program.
pub const fn parent_and_program(_process: Pid) -> Option<(u32, PathBuf)> {
    None
}

/// Whether a process runs. One that nobody waited for counts as well.
pub fn is_alive(process: u32) -> bool {
    let id = i32::try_from(process).ok().and_then(Pid::from_raw);
    id.is_some_and(|id| !matches!(test_kill_process(id), Err(Errno::SRCH)))
}

/// How much memory a process uses, in KiB.
pub const fn resident_kib(_process: u32) -> Option<u64> {
    None
}

/// The program that listens on a port, if this user can see it.
pub const fn listener(_port: u16) -> Option<String> {
    None
}
