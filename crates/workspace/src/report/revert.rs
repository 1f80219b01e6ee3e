//! Reverts the changes of a lease, byte for byte with modes, times and links, except for what somebody on this machine
//! edited after the remote.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use attache_protocol::wire::delegation::{ConflictChoice, HunkSelection, KeptPath, RevertRequest, RevertResult};
use rustix::io::Errno;

use super::{
    Error,
    compare::{PathNow, changed, is_change, is_spoiled},
    diff::{self, REQUESTED},
    moved::{MovedFile, moved_here},
    open_root,
    restore::{RestoreRefusal, RestoreSteps, attributes, remove_folder, unlock},
    review::{difference_at, hunks_of, patch_of},
};
use crate::export::{
    ExportRefusal, FileAttributes, LeaseRecord, LeaseRecordEntry, OriginalsFolder, PathAfter, PathBefore, PathStamp,
    from_shown, is_index,
    path::ExportPath,
    root::{ExportRoot, PathHandle},
    show,
};

const EDITED: &str = "it was edited on this machine after the remote changed it";
const EDITED_INDEX: &str = "git on this machine has rewritten it since, which a `git status` is enough for; if you have staged nothing \
                            since, take the version before the lease";
const OVERWRITTEN: &str = "it was edited on this machine in the meantime, and the remote overwrote the edit";
const MINE: &str = "it is as it was last edited on this machine";
const UNKNOWN: &str = "the lease ended in the middle of a change, so it is unknown who changed it; see the diff";
const SPOILED: &str = "the remote moved it, and it was edited on this machine under its new name";
const JUST_NOW: &str = "it is being edited on this machine right now";
const MOVED: &str = "it was moved on this machine, with the remote's changes in it";
const FILLED: &str = "files were added to it on this machine";

/// A path to restore, its original state, and what is there now.
struct RevertStep<'a> {
    place: ExportPath,
    was: &'a PathBefore,
    /// As it was checked. Nothing else is overwritten.
    now: Option<FileAttributes>,
}

/// A text file without the hunks that are discarded.
struct TextAfterDiscard {
    text: String,
    /// The file that the hunks were found in.
    seen: FileAttributes,
    /// Nothing remains of its change.
    is_original: bool,
}

/// Why a path is left alone.
struct RevertSkip {
    reason: String,
    /// Both sides edited it, and no version was chosen.
    conflict: bool,
}

/// Reverts the changes of a lease: all of them, or the given paths and everything below them. The lease must have
/// ended. What can't be restored is left and reported with the reason, and the rest is restored anyway. If a given path
/// is invalid, nothing is done. What was also edited on this machine is left, unless a version was chosen. Then what it
/// replaces is kept. Of a text file, some hunks can be reverted: what remains still counts as the lease's.
pub fn revert(dir: &Path, record: &LeaseRecord, request: &RevertRequest) -> Result<RevertResult, Error> {
    let root = open_root(dir)?;
    let remaining = match &request.hunks {
        Some(_) if !request.paths.is_empty() || request.take == Some(ConflictChoice::Mine) => {
            return Err(Error::HunksAlone);
        }
        Some(selection) => Some(remaining_text(&root, record, selection)?),
        None => None,
    };
    let paths = request.hunks.as_ref().map_or(&request.paths[..], |selection| std::slice::from_ref(&selection.path));
    let requested = resolve_paths(record, paths)?;
    let mut steps = RestoreSteps::new(&root, record);
    let mut done = RevertResult::default();
    let folders = if requested.is_empty() { still_folders(&root, record) } else { Vec::new() };
    let mut jobs = choose(&root, record, (&requested, request.alone), request.take, &mut done);
    // A folder in which something is only replaced keeps its time.
    let mut times = BTreeMap::new();
    for folder in jobs.keys().map(|path| parent(path)) {
        if let Ok(Some(found)) = root.find_optional(&folder) {
            times.insert(folder, (found.attributes.mode, found.attributes.modified));
        }
    }
    if requested.is_empty() {
        for MovedFile { to, .. } in moved_here(&root, record) {
            done.kept.push(KeptPath {
                path: show(&to),
                reason: MOVED.to_owned(),
                conflict: false,
                versions: Vec::new(),
            });
        }
    }
    // First remove what was not there, deepest first. Then restore what was, parents first.
    let mut skipped = Vec::new();
    for (path, job) in jobs.iter().rev() {
        if let Err(kept) = clear(&root, &mut steps, job) {
            skipped.push((path.clone(), kept));
        }
    }
    for (path, RevertSkip { reason, conflict }) in skipped {
        jobs.remove(&path);
        done.kept.push(KeptPath { path: show(&path), reason, conflict, versions: Vec::new() });
    }
    for (path, job) in &jobs {
        if *job.was != PathBefore::Absent {
            // Somebody here may have moved or removed the folders that it was in.
            steps.parents(&job.place);
        }
        let outcome = match job.was {
            PathBefore::Absent => Ok(()),
            PathBefore::Folder { mode, .. } => steps.folder(&job.place, *mode).map_err(RestoreRefusal::Refused),
            PathBefore::Link { target, modified } => {
                steps.link(&job.place, &from_shown(target), *modified, job.replaced())
            }
            PathBefore::File(kept) => match &remaining {
                Some(remaining) if !remaining.is_original => rewrite(&root, &mut steps, record, job, remaining),
                _ => steps.file(&job.place, kept, job.replaced()),
            },
        };
        match outcome {
            Ok(()) => done.restored.push(show(path)),
            Err(RestoreRefusal::Edited) => done.conflict(path, JUST_NOW),
            Err(RestoreRefusal::Refused(refusal)) => done.keep(path, refusal),
        }
    }
    for (place, reason) in steps.written_late() {
        done.conflict(place.whole(), &reason);
    }
    // Times of folders last: every change in a folder modifies them.
    let kept_in: BTreeSet<Vec<u8>> = done.kept.iter().map(|kept| parent(&from_shown(&kept.path))).collect();
    let restored = jobs.iter().map(|(path, job)| (&path[..], job.was));
    for (path, was) in restored.chain(folders).filter(|(path, _)| !kept_in.contains(*path)) {
        if let PathBefore::Folder { mode, modified, .. } = was {
            times.insert(path.to_vec(), (*mode, *modified));
        }
    }
    for (path, (mode, modified)) in times.into_iter().rev() {
        if let Ok(Some(found)) = root.find_optional(&path)
            && found.attributes.is_folder()
            && let Err(refusal) = attributes(&found, mode, modified)
        {
            done.keep(&path, refusal);
        }
    }
    Ok(done)
}

/// What remains of a text file. Refused if the person saw another patch.
fn remaining_text(
    root: &ExportRoot,
    record: &LeaseRecord,
    selection: &HunkSelection,
) -> Result<TextAfterDiscard, Error> {
    let path = &selection.path;
    let changed = || Error::Changed(path.clone());
    let difference = difference_at(root, record, path)?;
    let (old, new) = diff::sides(root, record, &difference, REQUESTED.file);
    if patch_of(&difference, &old, &new).fingerprint != selection.fingerprint {
        return Err(changed());
    }
    let no_hunk = |number| Error::NoHunk { path: path.clone(), number };
    let first = selection.numbers.first().copied().unwrap_or(1);
    let hunks = hunks_of(&difference, &old, &new).ok_or_else(|| no_hunk(first))?;
    if let Some(wrong) = selection.numbers.iter().find(|number| !(1..=hunks.len()).contains(*number)) {
        return Err(no_hunk(*wrong));
    }
    let (PathNow::Is(seen), PathBefore::File(was)) = (&difference.now, &difference.entry.was) else {
        return Err(changed());
    };
    let text = hunks.without(&selection.numbers.iter().copied().collect());
    let is_original = text.as_bytes() == old.bytes() && was.mode == seen.mode;
    Ok(TextAfterDiscard { text, seen: *seen, is_original })
}

/// Writes what remains of a text file, and records it as what the lease left.
fn rewrite(
    root: &ExportRoot,
    steps: &mut RestoreSteps<'_>,
    record: &LeaseRecord,
    job: &RevertStep<'_>,
    remaining: &TextAfterDiscard,
) -> Result<(), RestoreRefusal> {
    // The hunks were found in this file.
    if job.now.as_ref().map(PathStamp::of) != Some(PathStamp::of(&remaining.seen)) {
        return Err(RestoreRefusal::Edited);
    }
    steps.rewrite(&job.place, remaining.text.as_bytes(), &remaining.seen)?;
    Ok(OriginalsFolder::in_folder(&record.before).record_after(root, job.place.whole())?)
}

/// The given paths. Empty means all of them.
pub(crate) fn resolve_paths(record: &LeaseRecord, paths: &[String]) -> Result<Vec<ExportPath>, Error> {
    let mut requested = Vec::new();
    for path in paths {
        let place = place_of(path)?;
        let names =
            |path: &[u8]| ExportPath::parse(path).is_ok_and(|touched| place == touched || touched.is_below(&place));
        if !record.paths().any(names) {
            return Err(Error::Untouched(path.clone()));
        }
        requested.push(place);
    }
    Ok(requested)
}

/// A path below the folder.
pub(super) fn place_of(path: &str) -> Result<ExportPath, Error> {
    let below = ExportPath::parse(&from_shown(path)).ok().filter(|_| !path.starts_with('/'));
    below.ok_or_else(|| Error::NotBelow(path.to_owned()))
}

fn choose<'a>(
    root: &ExportRoot,
    record: &'a LeaseRecord,
    (requested, alone): (&[ExportPath], bool),
    take: Option<ConflictChoice>,
    done: &mut RevertResult,
) -> BTreeMap<Vec<u8>, RevertStep<'a>> {
    let mut jobs = BTreeMap::new();
    for (path, entry) in record.entries.iter().filter(|(path, entry)| is_change(path, entry)) {
        let Ok(place) = ExportPath::parse(path) else { continue };
        // With a removed file, the folders that it was in come back.
        let is_missing_parent = |one: &ExportPath| {
            one.is_below(&place)
                && matches!(entry.was, PathBefore::Folder { .. })
                && root.find_optional(path).is_ok_and(|now| now.is_none())
        };
        let is_below = |one: &ExportPath| !alone && place.is_below(one);
        let is_requested = |one: &ExportPath| *one == place || is_below(one) || is_missing_parent(one);
        if !requested.is_empty() && !requested.iter().any(is_requested) {
            continue;
        }
        match plan_step(root, record, path, entry, take) {
            Ok(None) => {}
            Ok(Some((was, now))) => {
                unlock(now.as_ref());
                jobs.insert(path.clone(), RevertStep { place, was, now: now.map(|now| now.attributes) });
            }
            Err(RevertSkip { reason, conflict }) => {
                let files = entry.versions.iter().filter_map(|version| match version {
                    PathBefore::File(file) => Some(record.before.join(file.kept.to_string()).display().to_string()),
                    PathBefore::Absent | PathBefore::Folder { .. } | PathBefore::Link { .. } => None,
                });
                let versions = if conflict { files.collect() } else { Vec::new() };
                done.kept.push(KeptPath { path: show(path), reason, conflict, versions });
            }
        }
    }
    jobs
}

/// The state to restore and what is there now, nothing if it is unchanged, or why it is left alone.
fn plan_step<'a>(
    root: &ExportRoot,
    record: &'a LeaseRecord,
    path: &[u8],
    entry: &'a LeaseRecordEntry,
    take: Option<ConflictChoice>,
) -> Result<Option<(&'a PathBefore, Option<PathHandle>)>, RevertSkip> {
    let alone = |reason: &str, conflict| RevertSkip { reason: reason.to_owned(), conflict };
    let now = root.find_optional(path).map_err(|refusal| alone(&refusal.to_string(), false))?;
    let is_as_before = changed(record, path, &entry.was, now.as_ref()).is_none();
    if is_as_before && (entry.versions.is_empty() || take != Some(ConflictChoice::Mine)) {
        return Ok(None);
    }
    if entry.left == PathAfter::Untouched {
        return Err(alone(UNKNOWN, false));
    }
    // The time of a folder changes with whatever is put into it.
    let is_folder = now.as_ref().is_some_and(|now| now.attributes.is_folder());
    if is_folder && matches!(entry.was, PathBefore::Folder { .. } | PathBefore::Absent) {
        return Ok(Some((&entry.was, now)));
    }
    // After a revert to the state before the lease, the other choice can still be made.
    let is_edited = !is_as_before && !entry.left.is_unchanged(now.as_ref().map(|now| &now.attributes));
    let mine = entry.versions.last();
    let was = match (take, mine) {
        (None, _) if is_edited && is_index(path) => return Err(alone(EDITED_INDEX, true)),
        (None, _) if is_edited => return Err(alone(EDITED, true)),
        (None, Some(_)) => return Err(alone(OVERWRITTEN, true)),
        (Some(ConflictChoice::Mine), _) if is_edited => return Err(alone(MINE, false)),
        (Some(ConflictChoice::Mine), Some(version)) => version,
        (_, None) | (Some(ConflictChoice::Before), _) => &entry.was,
    };
    if let PathBefore::File(file) = was
        && is_spoiled(record, file)
    {
        return Err(alone(SPOILED, false));
    }
    if is_edited && let Some(found) = now.as_ref().filter(|now| !now.attributes.is_folder()) {
        let kept = OriginalsFolder::in_folder(&record.before).keep_version(root, path, found);
        kept.map_err(|refusal| alone(&format!("the current version could not be kept: {refusal}"), false))?;
    }
    Ok(Some((was, now)))
}

/// Folders in which names changed and nobody else did anything since. Those that the remote closed are opened, so that
/// what is below can be checked.
fn still_folders<'a>(root: &ExportRoot, record: &'a LeaseRecord) -> Vec<(&'a [u8], &'a PathBefore)> {
    let mut still = Vec::new();
    for (path, entry) in record.entries.iter().filter(|(_, entry)| matches!(entry.was, PathBefore::Folder { .. })) {
        let now = root.find_optional(path).ok().flatten();
        if entry.left.is_unchanged(now.as_ref().map(|now| &now.attributes)) {
            still.push((&path[..], &entry.was));
            unlock(now.as_ref());
        }
    }
    still
}

/// Removes what is where something else was, or nothing.
fn clear(root: &ExportRoot, steps: &mut RestoreSteps<'_>, job: &RevertStep<'_>) -> Result<(), RevertSkip> {
    let Some(now) = &job.now else { return Ok(()) };
    let alone = |reason: String| RevertSkip { reason, conflict: false };
    let folder = now.is_folder();
    if job.replaced().is_some() || (folder && matches!(job.was, PathBefore::Folder { .. })) {
        return Ok(());
    }
    if !folder {
        return steps.remove(&job.place, now).map_err(|why| match why {
            RestoreRefusal::Edited => RevertSkip { reason: JUST_NOW.to_owned(), conflict: true },
            RestoreRefusal::Refused(refusal) => alone(refusal.to_string()),
        });
    }
    match remove_folder(root, &job.place) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Err(alone(FILLED.to_owned())),
        Err(errno) => Err(alone(ExportRefusal::from(errno).to_string())),
    }
}

// === impl RevertStep ===

impl RevertStep<'_> {
    /// The file or link that is replaced in a single step.
    fn replaced(&self) -> Option<&FileAttributes> {
        let is_replaced = !matches!(self.was, PathBefore::Absent | PathBefore::Folder { .. });
        self.now.as_ref().filter(|now| is_replaced && !now.is_folder())
    }
}

fn parent(path: &[u8]) -> Vec<u8> {
    ExportPath::parse(path).map_or_else(|_| Vec::new(), |place| place.parent().to_vec())
}

trait KeepPath {
    fn keep(&mut self, path: &[u8], reason: impl ToString);
    fn conflict(&mut self, path: &[u8], reason: &str);
}

impl KeepPath for RevertResult {
    fn keep(&mut self, path: &[u8], reason: impl ToString) {
        let (path, reason) = (show(path), reason.to_string());
        self.kept.push(KeptPath { path, reason, conflict: false, versions: Vec::new() });
    }

    fn conflict(&mut self, path: &[u8], reason: &str) {
        let (path, reason) = (show(path), reason.to_owned());
        self.kept.push(KeptPath { path, reason, conflict: true, versions: Vec::new() });
    }
}
