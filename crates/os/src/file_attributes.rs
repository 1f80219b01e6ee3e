//! The attributes of files, folders and links.

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    File,
    Folder,
    Link,
    /// A FIFO, device or socket.
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
    pub device: u64,
    /// Whether another file system is mounted there.
    pub mount_root: bool,
}

// === impl FileKind ===

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Special,
        }
    }
}

// === impl FileAttributes ===

impl FileAttributes {
    pub const fn is_folder(&self) -> bool {
        matches!(self.kind, FileKind::Folder)
    }
}
