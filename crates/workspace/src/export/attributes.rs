//! Which attributes of files, folders and links a remote can change.

use attache_os::file_attributes::FileTime;

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

// === impl AttributeChange ===

impl AttributeChange {
    pub(crate) const fn is_nothing(&self) -> bool {
        self.size.is_none() && self.mode.is_none() && self.accessed.is_none() && self.modified.is_none()
    }
}
