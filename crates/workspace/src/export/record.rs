//! What a lease touched, as kept in memory and line by line in `index.jsonl`: how each path was before, and how the lease
//! left it. The report and `revert` are made from it, also after a crash.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    attributes::{Attributes, Kind, Moment},
    path::{show, unshow},
};

/// All that one lease touched.
#[derive(Debug, Clone, Default)]
pub struct Record {
    pub(crate) before: PathBuf,
    pub(crate) entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) was: Was,
    pub(crate) left: Left,
    /// Somebody at the host changed it while the lease lasted.
    pub(crate) changed_here: bool,
    /// How somebody at the host had left it each time that the lease changed it again, the oldest first.
    pub(crate) versions: Vec<Was>,
}

/// How a path was before the lease first changed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Was {
    Absent,
    Folder {
        mode: u32,
        modified: Moment,
        /// Only something in it was made, moved or removed: its times change, and nobody calls that a change.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        times_only: bool,
    },
    Link {
        target: String,
        modified: Moment,
    },
    File(KeptFile),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptFile {
    pub(crate) mode: u32,
    pub(crate) modified: Moment,
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) links: u32,
    /// The file's name in the folder of originals.
    pub(crate) kept: u64,
}

/// How the lease left a path; whatever differs from it was done by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Left {
    Untouched,
    Absent,
    Is(Stamp),
    /// Open for writing, and not closed yet.
    Writing {
        inode: u64,
    },
}

/// Enough to tell two states of a path apart. The change time is not in it: links to an original change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    kind: Kind,
    inode: u64,
    size: u64,
    mode: u32,
    modified: Moment,
}

/// A line of the index; of several about one path, the last counts.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) was: Option<Was>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<Left>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) changed_here: bool,
    /// What of the host's is about to be overwritten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<Was>,
}

pub(super) const INDEX: &str = "index.jsonl";

// === impl Record ===

impl Record {
    /// Reads what a lease touched from the folder that was given as `before`, for instance after a crash.
    pub fn load(before: &Path) -> io::Result<Self> {
        match fs::read(before.join(INDEX)) {
            Ok(text) => Ok(Self::read(before, &text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::read(before, &[])),
            Err(error) => Err(error),
        }
    }

    /// A last line that was cut short is left out: what it announced did not happen. One in the middle that cannot be read
    /// costs what it says, and not the rest.
    pub(super) fn read(before: &Path, text: &[u8]) -> Self {
        let mut entries: BTreeMap<Vec<u8>, Entry> = BTreeMap::new();
        let lines = text.split_inclusive(|&byte| byte == b'\n').filter(|line| line.ends_with(b"\n"));
        for (number, line) in lines.enumerate() {
            let line: Line = match serde_json::from_slice(line) {
                Ok(line) => line,
                Err(error) => {
                    let (before, number) = (before.display(), number + 1);
                    tracing::warn!(%before, line = number, %error, "a line of the index of originals cannot be read");
                    continue;
                }
            };
            let path = unshow(&line.path);
            if let Some(was) = line.was {
                entries.entry(path.clone()).and_modify(|entry| entry.was = was.clone()).or_insert(Entry::new(was));
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

// === impl Entry ===

impl Entry {
    pub(super) const fn new(was: Was) -> Self {
        Self { was, left: Left::Untouched, changed_here: false, versions: Vec::new() }
    }

    /// Whether the path is, or was, a name of this file.
    pub(super) fn is_of(&self, inode: u64) -> bool {
        matches!(&self.was, Was::File(file) if file.inode == inode)
            || matches!(self.left, Left::Is(stamp) if stamp.inode == inode)
    }
}

// === impl Was ===

impl Was {
    pub(crate) const fn is_times_only(&self) -> bool {
        matches!(self, Self::Folder { times_only: true, .. })
    }

    /// As of a folder that is itself changed.
    pub(super) fn whole(mut self) -> Self {
        if let Self::Folder { times_only, .. } = &mut self {
            *times_only = false;
        }
        self
    }
}

// === impl Left ===

impl Left {
    pub(crate) fn of(now: Option<&Attributes>) -> Self {
        now.map_or(Self::Absent, |now| Self::Is(Stamp::of(now)))
    }

    /// Whether the path is still as the lease left it.
    pub(crate) fn still(&self, now: Option<&Attributes>) -> bool {
        match (self, now) {
            (Self::Untouched, _) | (Self::Absent, None) => true,
            (Self::Is(stamp), Some(now)) => *stamp == Stamp::of(now),
            // The writer died with the host's daemon: what is in that file is its.
            (Self::Writing { inode }, Some(now)) => *inode == now.inode,
            (Self::Absent, Some(_)) | (Self::Is(_) | Self::Writing { .. }, None) => false,
        }
    }
}

// === impl Stamp ===

impl Stamp {
    /// As the lease last saw a file that it writes into: whatever differs since is not its own.
    pub(crate) fn seen(now: &Attributes, size: u64, modified: Moment) -> Self {
        Self { size, modified, ..Self::of(now) }
    }

    pub(crate) fn of(now: &Attributes) -> Self {
        // A folder's size says nothing.
        let size = if now.is_folder() { 0 } else { now.size };
        Self { kind: now.kind, inode: now.inode, size, mode: now.mode, modified: now.modified }
    }
}

// === impl Line ===

impl Line {
    pub(super) fn about(path: &[u8]) -> Self {
        Self { path: show(path), was: None, left: None, changed_here: false, version: None }
    }
}
