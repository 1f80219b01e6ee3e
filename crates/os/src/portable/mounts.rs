//! Mounts, and the folders under them: each system has its own, and none is used here.

use std::{io, path::Path};

/// Whether folders of other machines can be mounted here.
pub const CAN_MOUNT: bool = false;

/// Sets the file system's immutable flag of a folder.
pub fn set_immutable(_folder: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn clear_immutable(_folder: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Mounts an empty file system on a folder that nobody can write to.
pub fn cover(_folder: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes what [`cover`] has mounted.
pub const fn uncover(_folder: &Path) {}

/// Sets how much is read ahead from a mounted file system. Only root can do that.
pub const fn set_read_ahead(_mount_point: &Path, _kibibytes: u32) {}

/// The type of the topmost file system mounted exactly there.
pub fn mounted_at(_mount_point: &Path) -> io::Result<Option<String>> {
    Err(io::ErrorKind::Unsupported.into())
}
