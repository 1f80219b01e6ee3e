//! The changes of a lease file by file, for a person who accepts or discards each of them.

use std::{collections::BTreeMap, fs::File, io::Read as _, path::Path};

use attache_protocol::{
    digest::hex,
    wire::delegation::{AcceptedFile, FilePatch, ReviewFile, ReviewHunk},
};
use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::OFlags;

use super::{
    Error,
    autorun::AutorunPatterns,
    compare::{PathDifference, PathNow, difference, differences},
    diff::{self, DiffBudget, DiffSide, NOT_SHOWN, PatchSection, REQUESTED},
    hunks::TextHunks,
    open_root,
    revert::place_of,
};
use crate::export::{ExportRefusal, FileKind, LeaseRecord, PathBefore, from_shown, root::ExportRoot, show};

/// The state in which a person accepted each path.
pub type AcceptedStates = BTreeMap<String, String>;

/// A file, and its place in the order.
struct ReviewedFile {
    file: ReviewFile,
    section: PatchSection,
}

/// All changes, without their patches: in the order of the diff, and what belongs to a git repository last.
pub fn review(dir: &Path, record: &LeaseRecord, accepted: &AcceptedStates) -> Result<Vec<ReviewFile>, Error> {
    let root = open_root(dir)?;
    let planted = AutorunPatterns::new()?;
    let mut budget = DiffBudget::default();
    let mut found: Vec<(bool, ReviewedFile)> = Vec::new();
    for difference in differences(&root, record) {
        // Beyond the budget, hunks and lines are only returned when the file itself is requested.
        let max_file = if budget.bytes == 0 { 0 } else { REQUESTED.file };
        let (old, new) = diff::sides(&root, record, &difference, max_file);
        budget.bytes = budget.bytes.saturating_sub(old.len() + new.len());
        let looked_at = look_at(&root, &difference, &old, &new, &planted, accepted);
        found.push((diff::is_of_git(difference.path), looked_at));
    }
    // Stable: within a section, the order of paths.
    found.sort_by_key(|(is_of_git, looked_at)| (*is_of_git, looked_at.section));
    Ok(found.into_iter().map(|(_, looked_at)| looked_at.file).collect())
}

/// One changed path, with its patch.
pub fn review_file(
    dir: &Path,
    record: &LeaseRecord,
    path: &str,
    accepted: &AcceptedStates,
) -> Result<ReviewFile, Error> {
    let root = open_root(dir)?;
    let difference = difference_at(&root, record, path)?;
    let (old, new) = diff::sides(&root, record, &difference, REQUESTED.file);
    let looked_at = look_at(&root, &difference, &old, &new, &AutorunPatterns::new()?, accepted);
    Ok(ReviewFile { patch: Some(patch_of(&difference, &old, &new)), ..looked_at.file })
}

/// Refuses what isn't in the state that a person saw.
pub fn check_states(dir: &Path, record: &LeaseRecord, files: &[AcceptedFile]) -> Result<(), Error> {
    let root = open_root(dir)?;
    for AcceptedFile { path, state } in files {
        let difference = difference_at(&root, record, path)?;
        if !state_at(&root, difference.path).is_ok_and(|now| now == *state) {
            return Err(Error::Changed(path.clone()));
        }
    }
    Ok(())
}

/// The accepted paths that still are as they were accepted.
pub fn accepted(dir: &Path, accepted: &AcceptedStates) -> Result<Vec<String>, Error> {
    let root = open_root(dir)?;
    let is_same =
        |(path, state): &(&String, &String)| state_at(&root, &from_shown(path)).is_ok_and(|now| now == **state);
    Ok(accepted.iter().filter(is_same).map(|(path, _)| path.clone()).collect())
}

/// How the path differs from before the lease.
pub(super) fn difference_at<'a>(
    root: &ExportRoot,
    record: &'a LeaseRecord,
    path: &str,
) -> Result<PathDifference<'a>, Error> {
    let place = place_of(path)?;
    let found = record.entries.get_key_value(place.whole()).filter(|(_, entry)| !entry.was.is_times_only());
    let (place, entry) = found.ok_or_else(|| Error::Untouched(path.to_owned()))?;
    difference(root, record, place, entry).ok_or_else(|| Error::Changed(path.to_owned()))
}

/// The hunks that can be discarded one by one.
pub(super) fn hunks_of<'a>(
    difference: &PathDifference<'_>,
    old: &'a DiffSide,
    new: &'a DiffSide,
) -> Option<TextHunks<'a>> {
    match (&difference.entry.was, &difference.now, old, new) {
        (PathBefore::File(_), PathNow::Is(now), DiffSide::Text(old), DiffSide::Text(new))
            if now.kind == FileKind::File =>
        {
            Some(TextHunks::of(old, new))
        }
        _ => None,
    }
}

pub(super) fn patch_of(difference: &PathDifference<'_>, old: &DiffSide, new: &DiffSide) -> FilePatch {
    let text = diff::one(difference, old, new);
    let text = text.unwrap_or_else(|| format!("{NOT_SHOWN}{}\n", show(difference.path)));
    let mut digest = Context::new(&SHA256);
    digest.update(text.as_bytes());
    FilePatch { text, fingerprint: hex(digest.finish().as_ref()) }
}

fn look_at(
    root: &ExportRoot,
    difference: &PathDifference<'_>,
    old: &DiffSide,
    new: &DiffSide,
    planted: &AutorunPatterns,
    accepted: &AcceptedStates,
) -> ReviewedFile {
    let hunks = hunks_of(difference, old, new);
    let lines = hunks.as_ref().map(TextHunks::lines).or_else(|| diff::lines(old, new));
    let changed = difference.changed_path(lines.filter(|_| difference.is_content()), planted);
    let state = state_of(root, difference, new);
    let headers = hunks.iter().flat_map(TextHunks::headers).zip(1..);
    let file = ReviewFile {
        accepted: state.is_some() && accepted.get(&changed.path) == state.as_ref(),
        hunks: headers.map(|(header, number)| ReviewHunk { number, header: header.to_owned() }).collect(),
        state,
        patch: None,
        changed,
    };
    let section = PatchSection::of(old, new, file.changed.run_by.is_some());
    ReviewedFile { file, section }
}

/// The state from the bytes that are shown, if they were read. `None` if it can't be read.
fn state_of(root: &ExportRoot, difference: &PathDifference<'_>, new: &DiffSide) -> Option<String> {
    match (&difference.now, new) {
        (PathNow::Is(now), DiffSide::Text(_) | DiffSide::Binary(_)) => {
            Some(finish(begin(now.kind, now.mode), new.bytes()))
        }
        _ => state_at(root, difference.path).ok(),
    }
}

/// A digest of what is at the path: kind, mode and content.
pub(crate) fn state_at(root: &ExportRoot, path: &[u8]) -> Result<String, ExportRefusal> {
    let Some(found) = root.find_optional(path)? else { return Ok("absent".to_owned()) };
    let mut digest = begin(found.attributes.kind, found.attributes.mode);
    match found.attributes.kind {
        FileKind::Folder | FileKind::Special => Ok(finish(digest, b"")),
        FileKind::Link => Ok(finish(digest, &found.target()?)),
        FileKind::File => {
            let mut file = File::from(found.reopen(OFlags::RDONLY)?);
            let mut buffer = vec![0; 64 << 10];
            loop {
                match file.read(&mut buffer)? {
                    0 => return Ok(finish(digest, b"")),
                    read => digest.update(&buffer[..read]),
                }
            }
        }
    }
}

fn begin(kind: FileKind, mode: u32) -> Context {
    let mut digest = Context::new(&SHA256);
    let mode = if kind == FileKind::Link { 0 } else { mode };
    digest.update(format!("{kind:?} {mode:o}\n").as_bytes());
    digest
}

fn finish(mut digest: Context, last: &[u8]) -> String {
    digest.update(last);
    hex(digest.finish().as_ref())
}
