//! Entries of a tree, held open where that is possible. Whatever else is done goes through the folder and the name, and is
//! refused if another entry has that name by now.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, SeekFrom, Stat, Timestamps, chmodat, fchmod, fstat, futimens, openat,
        readlinkat, seek, statat, utimensat,
    },
    io::{Errno, fcntl_dupfd_cloexec},
    path::Arg,
};

use super::beneath::{self, NameInFolder};
use crate::{
    confined::Confinement,
    file_attributes::{FileAttributes, FileKind, FileTime},
};

/// To write to a file. It is also read through the same descriptor: a descriptor can't be opened again for reading.
pub const WRITE: OFlags = OFlags::RDWR;

const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

#[derive(Debug)]
pub struct PathHandle {
    /// Files and folders, if they can be read.
    open: Option<OwnedFd>,
    /// Not known of a file that was found open.
    place: Option<NameInFolder>,
    /// As they were when it was found.
    pub attributes: FileAttributes,
}

/// The root of a tree. Its path can contain links.
pub fn root(path: &Path) -> Result<OwnedFd, Errno> {
    beneath::folder(path)
}

/// A folder below a root, in which names are used. There is no link on the way, and no other file system.
pub fn folder(root: impl AsFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    match PathHandle::find(root, path)? {
        PathHandle { attributes, .. } if attributes.kind == FileKind::Link => Err(Errno::LOOP),
        PathHandle { attributes, .. } if !attributes.is_folder() => Err(Errno::NOTDIR),
        PathHandle { open, .. } => open.ok_or(Errno::ACCESS),
    }
}

/// The attributes of an open file or folder.
pub fn attributes_of(fd: impl AsFd) -> Result<FileAttributes, Errno> {
    let stat = fstat(fd)?;
    Ok(attributes(&stat, &stat))
}

/// The attributes of a name in an open folder.
pub fn attributes_in(folder: impl AsFd, name: impl Arg) -> Result<FileAttributes, Errno> {
    let own = fstat(&folder)?;
    Ok(attributes(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?, &own))
}

/// A file system is mounted where the device changes.
#[allow(clippy::unnecessary_cast, reason = "the types of the members differ between systems")]
fn attributes(stat: &Stat, folder: &Stat) -> FileAttributes {
    let time = |seconds: i64, nanos: u64| FileTime { seconds, nanos: u32::try_from(nanos).unwrap_or_default() };
    FileAttributes {
        kind: FileType::from_raw_mode(stat.st_mode).into(),
        size: stat.st_size as u64,
        mode: stat.st_mode as u32 & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        links: u32::try_from(stat.st_nlink as u64).unwrap_or(u32::MAX),
        inode: stat.st_ino as u64,
        accessed: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
        modified: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        changed: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        device: stat.st_dev as u64,
        mount_root: stat.st_dev != folder.st_dev,
    }
}

// === impl PathHandle ===

impl PathHandle {
    /// Finds a path below a root. There is no link on the way, and no other file system. A link at its end is returned
    /// itself.
    pub fn find(root: impl AsFd, path: &[u8]) -> Result<Self, Errno> {
        Self::in_folder(beneath::resolve(root.as_fd(), path, Confinement::OneFileSystem)?)
    }

    /// A name in an open folder. A link is returned itself.
    pub fn at(folder: impl AsFd, name: &str) -> Result<Self, Errno> {
        Self::in_folder(beneath::resolve(folder.as_fd(), name.as_bytes(), Confinement::NoLinks)?)
    }

    /// Of an open file or folder.
    pub fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let attributes = attributes_of(&fd)?;
        Ok(Self { open: Some(fd), place: None, attributes })
    }

    fn in_folder(place: NameInFolder) -> Result<Self, Errno> {
        let attributes = attributes_in(&place.folder, &place.name[..])?;
        let mut found = Self { open: None, place: Some(place), attributes };
        if matches!(attributes.kind, FileKind::File | FileKind::Folder) {
            found.open = match found.open_name(OFlags::RDONLY) {
                Err(Errno::ACCESS | Errno::PERM) => None,
                open => Some(open?),
            };
        }
        Ok(found)
    }

    /// Opens what has the name, if that is still this entry.
    fn open_name(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let place = self.place.as_ref().ok_or(Errno::NOENT)?;
        let fd = openat(&place.folder, &place.name[..], flags | SAFE, Mode::empty())?;
        self.check(&attributes_of(&fd)?)?;
        Ok(fd)
    }

    fn check(&self, now: &FileAttributes) -> Result<(), Errno> {
        let is_same =
            (now.inode, now.device, now.kind) == (self.attributes.inode, self.attributes.device, self.attributes.kind);
        if is_same { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// The name, if it is still this entry's.
    fn checked_name(&self) -> Result<&NameInFolder, Errno> {
        let place = self.place.as_ref().ok_or(Errno::NOENT)?;
        self.check(&attributes_in(&place.folder, &place.name[..])?)?;
        Ok(place)
    }

    pub fn current_attributes(&self) -> Result<FileAttributes, Errno> {
        match (&self.open, &self.place) {
            (Some(open), _) => attributes_of(open),
            (None, Some(place)) => {
                let now = attributes_in(&place.folder, &place.name[..])?;
                self.check(&now).map(|()| now)
            }
            (None, None) => Err(Errno::NOENT),
        }
    }

    /// The same entry, opened for use. A FIFO or device is never opened: that alone can block or have an effect.
    pub fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        if !matches!(self.attributes.kind, FileKind::File | FileKind::Folder) {
            return Err(Errno::LOOP);
        }
        match (self.open_name(flags), &self.open) {
            // It has another name, or none.
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), Some(open)) if self.attributes.is_folder() => {
                openat(open, ".", flags | SAFE, Mode::empty())
            }
            (Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP), Some(open)) if flags == OFlags::RDONLY => {
                let open = fcntl_dupfd_cloexec(open, 0)?;
                seek(&open, SeekFrom::Start(0))?;
                Ok(open)
            }
            (opened, _) => opened,
        }
    }

    pub fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_bits_retain(mode as _);
        match &self.open {
            Some(open) => fchmod(open, mode),
            None => {
                let place = self.checked_name()?;
                chmodat(&place.folder, &place.name[..], mode, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match &self.open {
            Some(open) => futimens(open, times),
            None => {
                let place = self.checked_name()?;
                utimensat(&place.folder, &place.name[..], times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    /// Where a link leads.
    pub fn target(&self) -> Result<Vec<u8>, Errno> {
        if self.attributes.kind != FileKind::Link {
            return Err(Errno::INVAL);
        }
        let place = self.checked_name()?;
        Ok(readlinkat(&place.folder, &place.name[..], Vec::new())?.into_bytes())
    }

    /// The open folder.
    pub(super) const fn open(&self) -> Option<&OwnedFd> {
        self.open.as_ref()
    }
}
