//! The attributes of files, folders and links, and which of them a remote can change.

use rustix::fs::{FileType, Statx, StatxAttributes, StatxFlags};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Folder,
    Link,
    /// A FIFO, device or socket. It is listed, but everything else is refused.
    Special,
}

/// A point in time with the precision of file systems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileTime {
    pub seconds: i64,
    pub nanos: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAttributes {
    pub kind: FileKind,
    pub size: u64,
    /// The permission bits with setuid, setgid and sticky, without the file type.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub links: u32,
    pub inode: u64,
    pub accessed: FileTime,
    pub modified: FileTime,
    pub changed: FileTime,
    pub(crate) device: u64,
    pub(crate) mount_root: bool,
}

/// The attributes to change. Absent ones stay. Owners are not included: a request to change them succeeds without
/// effect, as on a file system without owners.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttributeChange {
    pub size: Option<u64>,
    /// Only the nine permission bits count. setuid, setgid and sticky are never set.
    pub mode: Option<u32>,
    pub accessed: Option<FileTime>,
    pub modified: Option<FileTime>,
}

// === impl FileAttributes ===

pub(crate) const WANTED: StatxFlags = StatxFlags::BASIC_STATS;

impl FileAttributes {
    pub const fn is_folder(&self) -> bool {
        matches!(self.kind, FileKind::Folder)
    }
}

impl From<&Statx> for FileAttributes {
    fn from(stat: &Statx) -> Self {
        let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Folder,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Special,
        };
        let moment = |time: &rustix::fs::StatxTimestamp| FileTime { seconds: time.tv_sec, nanos: time.tv_nsec };
        Self {
            kind,
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
}

// === impl AttributeChange ===

impl AttributeChange {
    pub(crate) const fn is_nothing(&self) -> bool {
        self.size.is_none() && self.mode.is_none() && self.accessed.is_none() && self.modified.is_none()
    }
}
