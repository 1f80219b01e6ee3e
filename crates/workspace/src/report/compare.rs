//! Compares how a path was before the lease with how it is now.

use std::{
    fs::File,
    io::{self, Read},
};

use attache_protocol::wire::delegation::Change;
use rustix::fs::OFlags;

use crate::export::{
    Attributes, Entry, KeptFile, Kind, Record, Refusal, Was,
    root::{Found, Root, attributes_of},
    unshow,
};

/// A path that is not as it was. There may be more of them than files may be open, so none holds one.
#[derive(Debug)]
pub(super) struct Difference<'a> {
    pub(super) path: &'a [u8],
    pub(super) entry: &'a Entry,
    pub(super) now: Now,
    pub(super) change: Change,
}

#[derive(Debug)]
pub(super) enum Now {
    Absent,
    Is(Attributes),
    /// It cannot be looked at, for instance below a folder that the remote closed.
    Unseen(Refusal),
}

/// Everything that differs, in order of paths. A folder is left out when something below it tells as much.
pub(super) fn differences<'a>(root: &Root, record: &'a Record) -> Vec<Difference<'a>> {
    let mut found: Vec<Difference<'a>> = Vec::new();
    // Backwards, so that what is below a folder is known before the folder.
    for (path, entry) in record.entries.iter().rev().filter(|(_, entry)| !entry.was.is_times_only()) {
        let (now, change) = match root.look_maybe(path) {
            Ok(now) => {
                let Some(change) = changed(record, &entry.was, now.as_ref()) else { continue };
                (now.map_or(Now::Absent, |now| Now::Is(now.attributes)), change)
            }
            Err(refusal) => (Now::Unseen(refusal), Change::Modified),
        };
        let folder =
            matches!(entry.was, Was::Folder { .. }) || matches!(&now, Now::Is(attributes) if attributes.is_folder());
        let told_below = found.last().is_some_and(|below| {
            below.path.starts_with(path) && below.path.get(path.len()) == Some(&b'/') && below.change == change
        });
        if !(folder && told_below) {
            found.push(Difference { path, entry, now, change });
        }
    }
    found.reverse();
    found
}

/// What cannot be read counts as modified.
pub(super) fn changed(record: &Record, was: &Was, now: Option<&Found>) -> Option<Change> {
    let Some(now) = now else {
        return (*was != Was::Absent).then_some(Change::Removed);
    };
    let at = &now.attributes;
    match was {
        Was::Absent => Some(Change::Added),
        Was::Folder { mode, .. } if at.is_folder() => (at.mode != *mode).then_some(Change::Attributes),
        Was::Link { target, modified } if at.kind == Kind::Link => {
            if now.target().ok() != Some(unshow(target)) {
                Some(Change::Modified)
            } else {
                (at.modified != *modified).then_some(Change::Attributes)
            }
        }
        Was::File(file) if at.kind == Kind::File => {
            // A lease that writes can set the time back, so only the bytes tell.
            if !same_content(record, file, now).unwrap_or(false) {
                Some(Change::Modified)
            } else {
                (at.mode != file.mode || at.modified != file.modified).then_some(Change::Attributes)
            }
        }
        Was::Folder { .. } | Was::Link { .. } | Was::File(_) => Some(Change::Modified),
    }
}

pub(super) fn same_content(record: &Record, file: &KeptFile, now: &Found) -> Result<bool, Refusal> {
    if file.size != now.attributes.size {
        return Ok(false);
    }
    let (mut old, mut new) = (kept(record, file)?, File::from(now.reopen(OFlags::RDONLY)?));
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
pub(super) fn kept(record: &Record, file: &KeptFile) -> io::Result<File> {
    File::open(record.before.join(file.kept.to_string()))
}

/// Whether the original is the very file that went by another name, and somebody has written into it there since.
pub(super) fn is_spoiled(record: &Record, file: &KeptFile) -> bool {
    let now = kept(record, file).and_then(|kept| Ok(attributes_of(kept)?));
    now.map_or(true, |now| now.size != file.size || (now.inode == file.inode && now.modified != file.modified))
}
