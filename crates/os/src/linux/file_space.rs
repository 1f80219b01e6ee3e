//! What a file system can do with the bytes of files.

use std::{fs::File, io, os::fd::AsFd, path::Path};

use rustix::{
    fs::{FallocateFlags, copy_file_range, fallocate, ioctl_ficlone, statfs},
    io::{Errno, retry_on_intr},
};

/// Reserves disk space after the end of a file, if the file system supports it.
pub fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    match retry_on_intr(|| fallocate(file, FallocateFlags::KEEP_SIZE, from, bytes)) {
        Err(error) if ![Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL].contains(&error) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes an empty file share the bytes of another one, until either is written to.
pub fn share_bytes(to: impl AsFd, from: impl AsFd) -> Result<(), Errno> {
    ioctl_ficlone(to, from)
}

/// Copies bytes from where one file is to where the other is, without reading them here.
pub fn copy_bytes(from: impl AsFd, to: impl AsFd, most: usize) -> Result<usize, Errno> {
    copy_file_range(from, None, to, None, most)
}

/// Whether a program serves the file system, perhaps from another machine. One that doesn't say what it is counts as such.
pub fn is_fuse(folder: &Path) -> bool {
    const FUSE: i64 = 0x6573_5546;
    statfs(folder).map_or(true, |system| system.f_type == FUSE)
}
