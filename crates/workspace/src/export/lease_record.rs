//! The lease record, kept in memory and line by line in `index.jsonl`: how each touched path was before, and how the
//! lease left it. The report and `revert` are made from it, also after a crash.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    FileAttributes, FileKind, FileTime,
    path::{from_shown, show},
};

/// Everything that one lease touched.
#[derive(Debug, Clone, Default)]
pub struct LeaseRecord {
    pub(crate) before: PathBuf,
    pub(crate) entries: BTreeMap<Vec<u8>, LeaseRecordEntry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRecordEntry {
    pub(crate) was: PathBefore,
    pub(crate) left: PathAfter,
    /// Somebody on the host changed it during the lease.
    pub(crate) changed_here: bool,
    /// The states in which somebody on the host had left it each time the lease changed it again, oldest first.
    pub(crate) versions: Vec<PathBefore>,
}

/// The state of a path before the lease first changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathBefore {
    Absent,
    Folder {
        mode: u32,
        modified: FileTime,
        /// Only an entry in it was created, moved or removed: its times change, which doesn't count as a change.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        times_only: bool,
    },
    Link {
        target: String,
        modified: FileTime,
    },
    File(OriginalFile),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OriginalFile {
    pub(crate) mode: u32,
    pub(crate) modified: FileTime,
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) links: u32,
    /// The file's name in the folder of originals.
    pub(crate) kept: u64,
}

/// The state in which the lease left a path. Any difference was made by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PathAfter {
    Untouched,
    Absent,
    Is(PathStamp),
    /// Open for writing, not closed yet.
    Writing {
        inode: u64,
    },
}

/// Enough to tell two states of a path apart. It doesn't include the change time, which links to an original modify.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathStamp {
    kind: FileKind,
    inode: u64,
    size: u64,
    mode: u32,
    modified: FileTime,
}

/// A line of the index. The last line about a path counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseRecordLine {
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<PathBefore>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<PathAfter>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) changed_here: bool,
    /// The host's version that is about to be overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<PathBefore>,
}

pub(super) const INDEX: &str = "index.jsonl";

// === impl LeaseRecord ===

impl LeaseRecord {
    /// Reads the record of a lease from the folder that was given as `before`, for example after a crash.
    pub fn load(before: &Path) -> io::Result<Self> {
        match fs::read(before.join(INDEX)) {
            Ok(text) => Ok(Self::read(before, &text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::read(before, &[])),
            Err(error) => Err(error),
        }
    }

    /// Skips a last line that was cut short: the change it announced did not happen. An unreadable line in the middle
    /// costs only its own content.
    pub(super) fn read(before: &Path, text: &[u8]) -> Self {
        let mut entries: BTreeMap<Vec<u8>, LeaseRecordEntry> = BTreeMap::new();
        let lines = text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        for (number, line) in lines.enumerate() {
            let line: LeaseRecordLine = match serde_json::from_slice(line) {
                Ok(line) => line,
                Err(error) => {
                    let (before, number) = (before.display(), number + 1);
                    tracing::warn!(%before, line = number, %error, "unreadable line in the index of originals");
                    continue;
                }
            };
            let path = from_shown(&line.path);
            if let Some(was) = line.was {
                entries
                    .entry(path.clone())
                    .and_modify(|entry| entry.was = was.clone())
                    .or_insert(LeaseRecordEntry::new(was));
            }
            if let Some(entry) = entries.get_mut(&path) {
                entry.left = line.left.unwrap_or(entry.left);
                entry.changed_here |= line.changed_here;
                entry.versions.extend(line.version);
            }
        }
        Self { before: before.to_owned(), entries }
    }

    /// The paths that it touched, whether they differ in the end or not.
    pub fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().filter(|(_, entry)| !entry.was.is_times_only()).map(|(path, _)| &path[..])
    }

    pub fn is_empty(&self) -> bool {
        self.paths().next().is_none()
    }
}

// === impl LeaseRecordEntry ===

impl LeaseRecordEntry {
    pub(super) const fn new(was: PathBefore) -> Self {
        Self { was, left: PathAfter::Untouched, changed_here: false, versions: Vec::new() }
    }

    /// Whether the path is, or was, a name of this file.
    pub(super) fn is_of(&self, inode: u64) -> bool {
        matches!(&self.was, PathBefore::File(file) if file.inode == inode)
            || matches!(self.left, PathAfter::Is(stamp) if stamp.inode == inode)
    }
}

// === impl PathBefore ===

impl PathBefore {
    pub(crate) const fn is_times_only(&self) -> bool {
        matches!(self, Self::Folder { times_only: true, .. })
    }

    /// For a folder that is itself changed.
    pub(super) fn whole(mut self) -> Self {
        if let Self::Folder { times_only, .. } = &mut self {
            *times_only = false;
        }
        self
    }
}

// === impl PathAfter ===

impl PathAfter {
    pub(crate) fn of(now: Option<&FileAttributes>) -> Self {
        now.map_or(Self::Absent, |now| Self::Is(PathStamp::of(now)))
    }

    /// Whether the path is still as the lease left it.
    pub(crate) fn is_unchanged(&self, now: Option<&FileAttributes>) -> bool {
        match (self, now) {
            (Self::Untouched, _) | (Self::Absent, None) => true,
            (Self::Is(stamp), Some(now)) => stamp.is_same(&PathStamp::of(now)),
            // The writer died with the host's daemon: the content of that file belongs to it.
            (Self::Writing { inode }, Some(now)) => *inode == now.inode,
            (Self::Absent, Some(_)) | (Self::Is(_) | Self::Writing { .. }, None) => false,
        }
    }
}

// === impl PathStamp ===

impl PathStamp {
    /// A copy counts if its time is the same to the nanosecond: the revert of a later lease puts one in place.
    fn is_same(&self, now: &Self) -> bool {
        let is_exact = self.kind != FileKind::Folder && self.modified.nanos != 0;
        let inode = if is_exact { now.inode } else { self.inode };
        Self { inode, ..*self } == *now
    }

    /// As the lease last saw a file that it writes to. Later differences are not its own.
    pub(crate) fn seen(now: &FileAttributes, size: u64, modified: FileTime) -> Self {
        Self { size, modified, ..Self::of(now) }
    }

    pub(crate) fn of(now: &FileAttributes) -> Self {
        // The size of a folder is meaningless.
        let size = if now.is_folder() { 0 } else { now.size };
        Self { kind: now.kind, inode: now.inode, size, mode: now.mode, modified: now.modified }
    }
}

// === impl LeaseRecordLine ===

impl LeaseRecordLine {
    pub(super) fn about(path: &[u8]) -> Self {
        Self { path: show(path), was: None, left: None, changed_here: false, version: None }
    }
}
