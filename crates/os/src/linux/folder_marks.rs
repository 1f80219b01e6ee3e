//! Marks on a folder that many can set at once: a read lock of an open folder, on a byte of its own. The system takes them away
//! when the process ends.

use std::{fs::File, io, os::fd::AsRawFd as _};

/// Sets a mark.
pub(crate) fn set(folder: &File, mark: u8) -> io::Result<()> {
    call(folder, libc::F_OFD_SETLK, lock(libc::F_RDLCK, i64::from(mark), 1)).map(drop)
}

/// Whether somebody else has set it.
pub(crate) fn is_set(folder: &File, mark: u8) -> io::Result<bool> {
    let found = call(folder, libc::F_OFD_GETLK, lock(libc::F_WRLCK, i64::from(mark), 1))?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

/// Removes all marks that were set here.
pub(crate) fn clear(folder: &File) {
    let _ = call(folder, libc::F_OFD_SETLK, lock(libc::F_UNLCK, 0, 0));
}

/// A length of zero is everything.
fn lock(kind: libc::c_int, start: i64, length: i64) -> libc::flock {
    // The constants are small, and their type differs.
    let (kind, whence) = (kind as libc::c_short, libc::SEEK_SET as libc::c_short);
    libc::flock { l_type: kind, l_whence: whence, l_start: start, l_len: length, l_pid: 0 }
}

#[allow(unsafe_code, reason = "fcntl with a structure that lives until it returns")]
fn call(folder: &File, command: libc::c_int, mut lock: libc::flock) -> io::Result<libc::flock> {
    // SAFETY: the descriptor is open, and the structure is a local one of the type that these commands take.
    match unsafe { libc::fcntl(folder.as_raw_fd(), command, &raw mut lock) } {
        0 => Ok(lock),
        _ => Err(io::Error::last_os_error()),
    }
}
