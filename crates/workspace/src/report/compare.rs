//! Compares the state of a path before the lease with its current state.

use std::{
    fs::File,
    io::{self, Read},
};

use attache_protocol::wire::delegation::FileChangeKind;
use rustix::fs::OFlags;

use crate::export::{
    ExportRefusal, FileAttributes, FileKind, LeaseRecord, LeaseRecordEntry, OriginalFile, PathBefore, from_shown,
    is_object,
    root::{ExportRoot, PathHandle, attributes_of},
};

/// A changed path. It holds no file open, because there may be more of them than open files allowed.
#[derive(Debug)]
pub(crate) struct PathDifference<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) entry: &'a LeaseRecordEntry,
    pub(crate) now: PathNow,
    pub(crate) change: FileChangeKind,
}

#[derive(Debug)]
pub(crate) enum PathNow {
    Absent,
    Is(FileAttributes),
    /// It can't be read, for example below a folder that the remote closed.
    Unseen(ExportRefusal),
}

impl PathDifference<'_> {
    /// The bytes of both sides.
    pub(super) fn size(&self) -> u64 {
        let old = if let PathBefore::File(file) = &self.entry.was { file.size } else { 0 };
        let new = match &self.now {
            PathNow::Is(now) if now.kind == FileKind::File => now.size,
            PathNow::Is(_) | PathNow::Absent | PathNow::Unseen(_) => 0,
        };
        old.saturating_add(new)
    }
}

/// Everything that differs, in order of paths. A folder is omitted if something below it says as much.
pub(crate) fn differences<'a>(root: &ExportRoot, record: &'a LeaseRecord) -> Vec<PathDifference<'a>> {
    let mut found: Vec<PathDifference<'a>> = Vec::new();
    // Backwards, so that what is below a folder is known before the folder.
    for (path, entry) in record.entries.iter().rev().filter(|(path, entry)| is_change(path, entry)) {
        let Some(difference) = difference(root, record, path, entry) else { continue };
        let (now, change) = (&difference.now, difference.change);
        let folder = matches!(entry.was, PathBefore::Folder { .. })
            || matches!(now, PathNow::Is(attributes) if attributes.is_folder());
        let told_below = found.last().is_some_and(|below| {
            below.path.starts_with(path) && below.path.get(path.len()) == Some(&b'/') && below.change == change
        });
        if !(folder && told_below) {
            found.push(difference);
        }
    }
    found.reverse();
    found
}

/// Whether an entry is a change that is shown and reverted. Objects that the lease added to a repository aren't one by
/// themselves: what refers to them is. They stay after a revert, because the owner may have built on them meanwhile.
pub(crate) fn is_change(path: &[u8], entry: &LeaseRecordEntry) -> bool {
    let is_added_object = matches!(entry.was, PathBefore::Absent) && is_object(path);
    !entry.was.is_times_only() && !is_added_object
}

/// How one path differs, if it does.
pub(crate) fn difference<'a>(
    root: &ExportRoot,
    record: &LeaseRecord,
    path: &'a [u8],
    entry: &'a LeaseRecordEntry,
) -> Option<PathDifference<'a>> {
    let (now, change) = match root.find_optional(path) {
        Ok(now) => {
            let change = changed(record, path, &entry.was, now.as_ref())?;
            (now.map_or(PathNow::Absent, |now| PathNow::Is(now.attributes)), change)
        }
        Err(refusal) => (PathNow::Unseen(refusal), FileChangeKind::Modified),
    };
    Some(PathDifference { path, entry, now, change })
}

/// Unreadable entries count as modified.
pub(super) fn changed(
    record: &LeaseRecord,
    path: &[u8],
    was: &PathBefore,
    now: Option<&PathHandle>,
) -> Option<FileChangeKind> {
    // Of an object that was there before, a lease changes only the attributes. Git touches those that it would write
    // again, and the owner's git packs them.
    let is_object = matches!(was, PathBefore::File(_)) && is_object(path);
    let Some(now) = now else {
        return (*was != PathBefore::Absent && !is_object).then_some(FileChangeKind::Removed);
    };
    let at = &now.attributes;
    match was {
        PathBefore::File(file) if is_object && at.kind == FileKind::File => {
            (at.mode != file.mode).then_some(FileChangeKind::Attributes)
        }
        PathBefore::Absent => Some(FileChangeKind::Added),
        PathBefore::Folder { mode, .. } if at.is_folder() => (at.mode != *mode).then_some(FileChangeKind::Attributes),
        PathBefore::Link { target, modified } if at.kind == FileKind::Link => {
            if now.target().ok() != Some(from_shown(target)) {
                Some(FileChangeKind::Modified)
            } else {
                (at.modified != *modified).then_some(FileChangeKind::Attributes)
            }
        }
        PathBefore::File(file) if at.kind == FileKind::File => {
            // A writing lease can set the time back, so only the bytes count.
            if !same_content(record, file, now).unwrap_or(false) {
                Some(FileChangeKind::Modified)
            } else {
                (at.mode != file.mode || at.modified != file.modified).then_some(FileChangeKind::Attributes)
            }
        }
        PathBefore::Folder { .. } | PathBefore::Link { .. } | PathBefore::File(_) => Some(FileChangeKind::Modified),
    }
}

pub(super) fn same_content(record: &LeaseRecord, file: &OriginalFile, now: &PathHandle) -> Result<bool, ExportRefusal> {
    if file.size != now.attributes.size {
        return Ok(false);
    }
    let (mut old, mut new) = (open_original(record, file)?, File::from(now.reopen(OFlags::RDONLY)?));
    let (mut left, mut right) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let (old, new) = (fill(&mut old, &mut left)?, fill(&mut new, &mut right)?);
        if left[..old] != right[..new] {
            return Ok(false);
        }
        if old == 0 {
            return Ok(true);
        }
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..])? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

/// The original's bytes.
pub(crate) fn open_original(record: &LeaseRecord, file: &OriginalFile) -> io::Result<File> {
    File::open(record.before.join(file.kept.to_string()))
}

/// Whether the original is the same file that got another name, and somebody has written to it there since.
pub(super) fn is_spoiled(record: &LeaseRecord, file: &OriginalFile) -> bool {
    let now = open_original(record, file).and_then(|original| Ok(attributes_of(original)?));
    now.map_or(true, |now| now.size != file.size || (now.inode == file.inode && now.modified != file.modified))
}
