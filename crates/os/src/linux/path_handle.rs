//! Entries of a tree, held by a handle (`O_PATH`): whatever happens to the name, the handle stays with the entry.

use std::{
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timestamps, chmod, openat,
        readlinkat, statx, utimensat,
    },
    io::Errno,
    path::Arg,
};

use super::beneath;
use crate::{
    confined::Confinement,
    file_attributes::{FileAttributes, FileKind, FileTime},
};

/// To write to a file that is never read through the same descriptor.
pub const WRITE: OFlags = OFlags::WRONLY;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const WANTED: StatxFlags = StatxFlags::BASIC_STATS;

#[derive(Debug)]
pub struct PathHandle {
    fd: OwnedFd,
    /// As they were when it was found.
    pub attributes: FileAttributes,
}

/// The root of a tree. Its path can contain links.
pub fn root(path: &Path) -> Result<OwnedFd, Errno> {
    beneath::folder(path)
}

/// A folder below a root, in which names are used. There is no link on the way, and no other file system.
pub fn folder(root: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    find(root, path, OFlags::DIRECTORY)
}

fn find(root: impl AsFd, path: &[u8], more: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    loop {
        match beneath::open(&root, path, HANDLE | more, Mode::empty(), Confinement::OneFileSystem) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            done => return done.map(|found| found.fd),
        }
    }
}

/// The attributes of an open file or folder.
pub fn attributes_of(fd: impl AsFd) -> Result<FileAttributes, Errno> {
    Ok(attributes(&statx(fd, "", AtFlags::EMPTY_PATH, WANTED)?))
}

/// The attributes of a name in an open folder.
pub fn attributes_in(folder: impl AsFd, name: impl Arg) -> Result<FileAttributes, Errno> {
    Ok(attributes(&statx(folder, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED)?))
}

fn attributes(stat: &Statx) -> FileAttributes {
    let moment = |time: &StatxTimestamp| FileTime { seconds: time.tv_sec, nanos: time.tv_nsec };
    FileAttributes {
        kind: FileType::from_raw_mode(stat.stx_mode.into()).into(),
        size: stat.stx_size,
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        links: stat.stx_nlink,
        inode: stat.stx_ino,
        accessed: moment(&stat.stx_atime),
        modified: moment(&stat.stx_mtime),
        changed: moment(&stat.stx_ctime),
        device: (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor),
        mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }
}

// === impl PathHandle ===

impl PathHandle {
    /// Finds a path below a root. There is no link on the way, and no other file system. A link at its end is returned
    /// itself.
    pub fn find(root: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        Self::of(find(root, path, OFlags::empty())?)
    }

    /// A name in an open folder. A link is returned itself.
    pub fn at(folder: impl AsFd, name: &str) -> Result<Self, Errno> {
        openat(folder, name, HANDLE, Mode::empty()).and_then(Self::of)
    }

    /// Of an open file or folder.
    pub fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let attributes = attributes_of(&fd)?;
        Ok(Self { fd, attributes })
    }

    pub fn current_attributes(&self) -> Result<FileAttributes, Errno> {
        attributes_of(&self.fd)
    }

    /// The same entry, opened for use. A FIFO or device is never opened: that alone can block or have an effect.
    pub fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        if !matches!(self.attributes.kind, FileKind::File | FileKind::Folder) {
            return Err(Errno::LOOP);
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        rustix::fs::open(self.proc_path(), flags, Mode::empty())
    }

    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        chmod(self.proc_path(), Mode::from_raw_mode(mode))
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        utimensat(&self.fd, "", times, AtFlags::EMPTY_PATH)
    }

    /// Where a link leads.
    pub fn target(&self) -> Result<Vec<u8>, Errno> {
        if self.attributes.kind != FileKind::Link {
            return Err(Errno::INVAL);
        }
        Ok(readlinkat(&self.fd, "", Vec::new())?.into_bytes())
    }

    /// A magic link to this handle, for calls that don't accept an `O_PATH` handle.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }
}
