//! The wire format of attache-fs, our own file system protocol: one framed stream, requests with ids in one direction,
//! replies and news about the tree in the other. It knows nothing of SSH, FUSE or exports.
//!
//! A frame is a 32-bit length, one byte that says what it is, and a body. Numbers are big-endian. Paths are relative to
//! the shared folder, without a leading slash; the folder itself is the empty path. Names are bytes.

mod codec;
mod event;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use self::{
    codec::{FrameBuffer, MalformedFrame},
    event::{FsEvent, FsFailure, FsListing, FsReply, FsTreeChange, FsWelcome},
    request::{FsOpenFlags, FsRequest, WantedLock},
};
use crate::export::{FileKind, FileTime};

/// The name of the SSH subsystem.
pub(crate) const SUBSYSTEM: &str = "attache-fs";
pub(crate) const VERSION: u32 = 1;
/// The most file content in one frame.
pub(crate) const MAX_DATA: usize = 1 << 20;
/// The most that one request copies. Others wait meanwhile.
pub(crate) const MAX_COPY: u64 = 64 << 20;
/// The longest frame accepted or sent, without its length: content and a header with two paths.
pub(crate) const MAX_FRAME: usize = MAX_DATA + (64 << 10);
/// A time of [`FsRequest::SetAttributes`] with these nanoseconds means: the host's clock (`UTIME_NOW`).
pub(crate) const NOW: FileTime = FileTime { seconds: 0, nanos: 0x3fff_ffff };

/// The attributes of a file as the host has them, down to the nanosecond: git takes any difference for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FsAttributes {
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) accessed: FileTime,
    pub(crate) modified: FileTime,
    pub(crate) changed: FileTime,
}

/// One entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsEntry {
    pub(crate) attributes: FsAttributes,
    /// Of a symbolic link.
    pub(crate) target: Option<Vec<u8>>,
}

/// What tells one version of a file from another: any change of the file changes one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FsVersion {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: FileTime,
    pub(crate) changed: FileTime,
}

/// When the host looked: of two reports about the same thing, the one with the greater stamp is newer, whichever
/// arrives first. A stamp is taken before looking, and after the change that a reply reports.
pub(crate) type Stamp = u64;

// === impl FsAttributes ===

impl FsAttributes {
    /// Whether the content may differ.
    pub(crate) fn is_same_content(&self, other: &Self) -> bool {
        self.version() == other.version()
    }

    pub(crate) const fn version(&self) -> FsVersion {
        FsVersion { inode: self.inode, size: self.size, modified: self.modified, changed: self.changed }
    }
}
