//! What a file system can do with the bytes of files: next to nothing that every system has.

use std::{fs::File, io, os::fd::AsFd, path::Path};

use rustix::{fs::fstatvfs, io::Errno};

/// Fails if there isn't so much disk space. Nothing is reserved: another program can take it.
pub fn reserve(file: &File, _from: u64, bytes: u64) -> io::Result<()> {
    let system = fstatvfs(file)?;
    if system.f_bavail.saturating_mul(system.f_frsize) < bytes { Err(Errno::NOSPC.into()) } else { Ok(()) }
}

/// Makes an empty file share the bytes of another one, until either is written to.
pub fn share_bytes(_to: impl AsFd, _from: impl AsFd) -> Result<(), Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Copies bytes from where one file is to where the other is, without reading them here.
pub fn copy_bytes(_from: impl AsFd, _to: impl AsFd, _most: usize) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

/// Whether a program serves the file system, perhaps from another machine.
pub fn is_fuse(_folder: &Path) -> bool {
    false
}
