//! Brings what the remote changed in its copy into the folder, path by path: each one completely or not at all, and none that
//! both sides changed, unless a version was chosen or a text can be merged.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    path::Path,
    sync::Arc,
};

use attache_protocol::wire::{
    awcp::AccessMode,
    delegation::{
        ApplyChoice, ApplyRequest, ApplyResult, ConflictChoice, ConflictHunk, RevertRequest, ReviewFile, UnappliedPath,
    },
};
use rustix::fs::OFlags;

use super::{
    rules::{ApplyStep, PathVersion, decide, unshared},
    version,
};
use crate::{
    export::{
        AttributeChange, Export, ExportPatterns, ExportRefusal, ExportTerms, FileAttributes, LeaseQuota, LeaseRecord,
        LeaseRecordEntry, NoExportAudit, OriginalsFolder, PathBefore, ReplacementContent, from_shown, inside,
        is_object,
        path::ExportPath,
        root::{ExportRoot, PathHandle},
        show,
    },
    merge::{merge_favoring_theirs, merge_or_conflicts},
    report::{
        self, AcceptedStates, Error, check_states, difference, differences, is_change, open_original, open_root,
        resolve_paths, state_at,
    },
};

/// The owner's folder.
#[derive(Debug)]
pub struct ApplyTarget<'a> {
    pub folder: &'a Path,
    /// Where the originals of what is replaced in the folder are kept.
    pub before: &'a Path,
    /// Those of the lease: nothing is applied where the remote couldn't have worked.
    pub rules: &'a ExportPatterns,
    /// An unused name, for entries that aren't complete yet.
    pub making: &'a str,
}

#[derive(Debug, Default)]
pub struct AppliedChanges {
    pub result: ApplyResult,
    /// Everything that was ever applied, in the state in which it was.
    pub applied: AcceptedStates,
    /// Paths that were changed in the folder.
    pub changed: Vec<Vec<u8>>,
}

/// Carries out one request.
struct ApplyPass<'a> {
    copy: ExportRoot,
    record: &'a LeaseRecord,
    folder: ExportRoot,
    export: Option<Export>,
    making: &'a str,
    take: Option<ApplyChoice>,
    done: AppliedChanges,
    /// Conflicts that are decided for the owner's version.
    mine: Vec<String>,
}

/// One changed path.
struct ApplyJob<'a> {
    path: &'a [u8],
    entry: &'a LeaseRecordEntry,
    theirs: PathVersion,
    /// It goes with something else that was asked for. That it couldn't be done needs no mention.
    goes_along: bool,
    /// It is a change that is shown. Objects of a repository aren't, nor folders in which something else changed in the same way.
    is_shown: bool,
}

/// Why a path isn't applied.
enum ApplySkip {
    Refused(ExportRefusal),
    Conflict { reason: String, hunks: Vec<ConflictHunk> },
}

/// The order in which paths are applied.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ApplyOrder {
    /// What refers to them comes later. A pack comes before its index.
    Object {
        is_index: bool,
    },
    Removal,
    Entry,
    Git,
    GitRemoval,
}

/// Larger texts aren't merged.
const MAX_MERGED: u64 = 1 << 20;
const MAX_HUNKS: usize = 20;
/// A ref is an id or the name of another ref.
const MAX_REF: u64 = 4 << 10;

const EDITED: &str = "it was also changed in the folder since the copy was made";
const EDITED_GIT: &str = "git in the folder has changed it too since the copy was made";
const SAME_LINES: &str = "the same lines were also changed in the folder since the copy was made";
const JUST_NOW: &str = "it is being changed in the folder right now";

/// Applies what the request names, or everything that isn't in `applied` yet. `merged` is called after each merge, so that no text is
/// merged twice: neither now nor after a crash.
pub fn apply(
    copy: &Path,
    record: &LeaseRecord,
    target: &ApplyTarget<'_>,
    request: &ApplyRequest,
    applied: AcceptedStates,
    merged: &mut dyn FnMut(&AcceptedStates),
) -> Result<AppliedChanges, Error> {
    check_states(copy, record, &request.files)?;
    let mut run = ApplyPass::new(copy, record, target, request, applied)?;
    for job in run.jobs(request)? {
        run.carry_out(&job, merged);
    }
    let ApplyPass { export, mut done, mine, .. } = run;
    drop(export);
    if !mine.is_empty() && !request.check {
        let discard =
            RevertRequest { paths: mine, alone: true, take: Some(ConflictChoice::Before), ..RevertRequest::default() };
        let reverted = report::revert(copy, record, &discard)?;
        done.result.discarded = reverted.restored;
        done.result.kept.extend(reverted.kept.into_iter().map(|kept| UnappliedPath {
            path: kept.path,
            reason: kept.reason,
            conflict: kept.conflict,
            hunks: Vec::new(),
        }));
    } else {
        done.result.discarded = mine;
    }
    done.result.unapplied = unapplied(copy, record, &done.applied)?.len() as u64;
    Ok(done)
}

/// The changed paths that were not applied as they are.
pub fn unapplied(copy: &Path, record: &LeaseRecord, applied: &AcceptedStates) -> Result<Vec<String>, Error> {
    let root = open_root(copy)?;
    let found = differences(&root, record).into_iter().map(|difference| (show(difference.path), difference.path));
    let is_left = |(shown, path): &(String, &[u8])| !is_applied(&root, path, applied.get(shown));
    Ok(found.filter(is_left).map(|(shown, _)| shown).collect())
}

/// The states in which these paths are now.
pub fn states<'a>(dir: &Path, paths: impl Iterator<Item = &'a String>) -> Result<AcceptedStates, Error> {
    let root = open_root(dir)?;
    Ok(paths.filter_map(|path| Some((path.clone(), state_at(&root, &from_shown(path)).ok()?))).collect())
}

/// Marks files that were changed in the folder since the copy was made.
pub fn mark_changed_in_folder(
    copy: &Path,
    record: &LeaseRecord,
    folder: &Path,
    files: &mut [ReviewFile],
) -> Result<(), Error> {
    let (copy, folder) = (open_root(copy)?, open_root(folder)?);
    for file in files {
        let path = from_shown(&file.changed.path);
        let Some(entry) = record.entries.get(&path) else { continue };
        let versions = || {
            let base = version::before(record, &path, &entry.was)?;
            let ours = version::now(&path, folder.find_optional(&path)?.as_ref())?;
            let theirs = version::now(&path, copy.find_optional(&path)?.as_ref())?;
            Ok::<_, ExportRefusal>(ours != base && ours != theirs)
        };
        file.changed.also_changed_here = !file.accepted && versions().unwrap_or(true);
    }
    Ok(())
}

/// After applied changes were reverted: when they are applied again, the folder is as it was left, and nobody edited it.
pub fn note_reverted(folder: &Path, before: &Path, paths: &[String]) -> Result<(), Error> {
    let root = open_root(folder)?;
    let noted = OriginalsFolder::in_folder(before).record_all_after(&root, paths.iter().map(|path| from_shown(path)));
    noted.map_err(Error::Before)
}

/// Clears up after an apply whose process was killed.
pub fn clear_interrupted(record: &LeaseRecord, target: &ApplyTarget<'_>) -> Result<(), Error> {
    let export = open_export(target)?;
    clear(&export, record, target);
    Ok(())
}

fn clear(export: &Export, record: &LeaseRecord, target: &ApplyTarget<'_>) {
    let places = record.entries.keys().filter_map(|path| ExportPath::parse(path).ok());
    let folders: BTreeSet<Vec<u8>> = places.map(|place| place.parent().to_vec()).collect();
    export.clear_leftovers(folders.iter().map(Vec::as_slice), target.making, target.before);
}

fn open_export(target: &ApplyTarget<'_>) -> Result<Export, Error> {
    let terms =
        ExportTerms { rules: target.rules.clone(), quota: LeaseQuota::UNLIMITED, ..ExportTerms::new(AccessMode::Rw) };
    Ok(Export::open(target.folder, terms, OriginalsFolder::in_folder(target.before), Arc::new(NoExportAudit))?)
}

fn is_applied(copy: &ExportRoot, path: &[u8], state: Option<&String>) -> bool {
    state.is_some_and(|state| state_at(copy, path).is_ok_and(|now| now == *state))
}

// === impl ApplyPass ===

impl<'a> ApplyPass<'a> {
    fn new(
        copy: &Path,
        record: &'a LeaseRecord,
        target: &ApplyTarget<'a>,
        request: &ApplyRequest,
        applied: AcceptedStates,
    ) -> Result<Self, Error> {
        let (copy, folder) = (open_root(copy)?, open_root(target.folder)?);
        let export = if request.check { None } else { Some(open_export(target)?) };
        if let Some(export) = &export {
            clear(export, record, target);
        }
        let done = AppliedChanges { applied, ..AppliedChanges::default() };
        Ok(Self { copy, record, folder, export, making: target.making, take: request.take, done, mine: Vec::new() })
    }

    /// What to apply, in order.
    fn jobs(&mut self, request: &ApplyRequest) -> Result<Vec<ApplyJob<'a>>, Error> {
        let exact: Vec<String> = request.files.iter().map(|file| file.path.clone()).collect();
        let wanted = Selection {
            below: resolve_paths(self.record, &request.paths)?,
            exact: resolve_paths(self.record, &exact)?,
        };
        let mut jobs: BTreeMap<(ApplyOrder, Vec<u8>), ApplyJob<'a>> = BTreeMap::new();
        let record = self.record;
        let shown: BTreeSet<&[u8]> = differences(&self.copy, record).into_iter().map(|one| one.path).collect();
        for (path, entry) in &record.entries {
            let is_new_object = is_object(path) && matches!(entry.was, PathBefore::Absent);
            if !is_new_object && !is_change(path, entry) {
                continue;
            }
            let Ok(place) = ExportPath::parse(path) else { continue };
            let Some(goes_along) = wanted.takes(&place, entry, is_new_object) else { continue };
            if difference(&self.copy, self.record, path, entry).is_none()
                || is_applied(&self.copy, path, self.done.applied.get(&show(path)))
            {
                continue;
            }
            let found = self.copy.find_optional(path);
            let theirs = match found.and_then(|found| version::now(path, found.as_ref())) {
                Ok(theirs) => theirs,
                Err(refusal) => {
                    self.keep(path, ApplySkip::Refused(refusal));
                    continue;
                }
            };
            if goes_along && !is_new_object && theirs != PathVersion::Absent {
                continue;
            }
            let order = ApplyOrder::of(path, is_new_object, &theirs);
            // What is in a folder is removed before the folder.
            let is_removal = matches!(order, ApplyOrder::Removal | ApplyOrder::GitRemoval);
            let place =
                if is_removal { path.iter().map(|byte| !byte).chain([u8::MAX]).collect() } else { path.clone() };
            jobs.insert(
                (order, place),
                ApplyJob { path, entry, theirs, goes_along, is_shown: shown.contains(&path[..]) },
            );
        }
        Ok(jobs.into_values().collect())
    }

    fn carry_out(&mut self, job: &ApplyJob<'_>, merged: &mut dyn FnMut(&AcceptedStates)) {
        let path = show(job.path);
        match self.bring(job) {
            Ok(_) if !job.is_shown => {}
            Ok(has_merged) => {
                if let Ok(state) = state_at(&self.copy, job.path)
                    && self.export.is_some()
                {
                    self.done.applied.insert(path.clone(), state);
                }
                if has_merged {
                    self.done.result.merged.push(path.clone());
                    if self.export.is_some() {
                        merged(&self.done.applied);
                    }
                }
                self.done.result.applied.push(path);
            }
            Err(ApplySkip::Conflict { .. }) if self.take == Some(ApplyChoice::Mine) => self.mine.push(path),
            Err(ApplySkip::Refused(_)) if job.goes_along => {}
            Err(skip) => self.keep(job.path, skip),
        }
    }

    /// Brings one path into the folder. Returns whether it was merged.
    fn bring(&mut self, job: &ApplyJob<'_>) -> Result<bool, ApplySkip> {
        let base = version::before(self.record, job.path, &job.entry.was)?;
        let found = self.folder.find_optional(job.path)?;
        let ours = version::now(job.path, found.as_ref())?;
        let theirs = job.theirs.clone().within(&base, &ours);
        let step = decide(&base, &ours, &theirs);
        match step {
            ApplyStep::Settled => Ok(false),
            ApplyStep::Put(version) => self.put(job, &version, found.as_ref()).map(|()| false),
            ApplyStep::SetMode(mode) => {
                self.set_mode(job.path, mode)?;
                self.done.changed.push(job.path.to_vec());
                Ok(false)
            }
            ApplyStep::Merge { mode } if inside(job.path).is_none() => {
                let merged = match &found {
                    Some(found) => self.merge(job, found, mode),
                    None => Err(ApplySkip::conflict(EDITED)),
                };
                match merged {
                    // Not texts whose lines could be chosen.
                    Err(ApplySkip::Conflict { .. }) if self.take == Some(ApplyChoice::Theirs) => {
                        self.put(job, &theirs, found.as_ref()).map(|()| false)
                    }
                    merged => merged,
                }
            }
            ApplyStep::Merge { .. } | ApplyStep::Conflict
                if self.take == Some(ApplyChoice::Theirs) && !is_branch(job.path) =>
            {
                self.put(job, &theirs, found.as_ref()).map(|()| false)
            }
            ApplyStep::Merge { .. } | ApplyStep::Conflict => Err(ApplySkip::conflict(self.conflict(job.path))),
        }
    }

    fn merge(&mut self, job: &ApplyJob<'_>, found: &PathHandle, mode: u32) -> Result<bool, ApplySkip> {
        let PathBefore::File(was) = &job.entry.was else { return Err(ApplySkip::conflict(EDITED)) };
        let base = version::read(open_original(self.record, was)?, MAX_MERGED)?;
        let ours = version::read(File::from(found.reopen(OFlags::RDONLY)?), MAX_MERGED)?;
        let theirs = version::text(&self.copy, job.path, MAX_MERGED)?;
        let (Some(base), Some(ours), Some(theirs)) = (base, ours, theirs) else {
            return Err(ApplySkip::conflict(EDITED));
        };
        let merged = match self.take {
            Some(ApplyChoice::Theirs) => merge_favoring_theirs(&base, &ours, &theirs).ok_or_else(Vec::new),
            _ => merge_or_conflicts(&base, &ours, &theirs),
        };
        match merged {
            Ok(text) => {
                if text != ours {
                    let new = ReplacementContent::Text { content: &text, mode };
                    self.replace(job.path, &new, Some(&found.attributes))?;
                } else if mode != found.attributes.mode & 0o777 {
                    self.set_mode(job.path, mode)?;
                }
                Ok(true)
            }
            Err(places) => {
                let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                let hunks: Vec<ConflictHunk> = places
                    .iter()
                    .take(MAX_HUNKS)
                    .map(|place| ConflictHunk {
                        line: place.line + 1,
                        base: lossy(&place.base),
                        mine: lossy(&place.ours),
                        theirs: lossy(&place.theirs),
                    })
                    .collect();
                let reason = if hunks.is_empty() { EDITED } else { SAME_LINES };
                Err(ApplySkip::Conflict { reason: reason.to_owned(), hunks })
            }
        }
    }

    /// Puts the remote's version in place of what was found.
    fn put(&mut self, job: &ApplyJob<'_>, version: &PathVersion, found: Option<&PathHandle>) -> Result<(), ApplySkip> {
        let path = job.path;
        let there = found.map(|found| &found.attributes);
        let is_folder = there.is_some_and(FileAttributes::is_folder);
        if let Some(export) = &self.export
            && is_folder
            && !matches!(version, PathVersion::Folder { .. })
        {
            // Refused if there is something in it that the remote didn't see.
            export.remove_dir(path)?;
            self.done.changed.push(path.to_vec());
        }
        let judged = there.filter(|_| !is_folder);
        match version {
            PathVersion::Absent => match (&self.export, judged) {
                (Some(export), Some(judged)) => export.take_away(path, judged, self.making)?,
                (None, _) | (_, None) => return Ok(()),
            },
            PathVersion::Folder { mode } => {
                if let (Some(export), Some(judged)) = (&self.export, judged) {
                    export.take_away(path, judged, self.making)?;
                }
                self.parents(path)?;
                if let Some(export) = &self.export {
                    export.make_dir(path, *mode)?;
                }
                // Without the umask.
                self.set_mode(path, *mode)?;
            }
            PathVersion::Link(target) => {
                self.parents(path)?;
                return self.replace(path, &ReplacementContent::Link(target), judged);
            }
            PathVersion::File { mode, .. } => {
                self.parents(path)?;
                let content = File::from(self.copy.find(path)?.reopen(OFlags::RDONLY)?);
                return self.replace(path, &ReplacementContent::File { content: &content, mode: *mode }, judged);
            }
            PathVersion::Special => return Err(ApplySkip::conflict(EDITED)),
        }
        self.done.changed.push(path.to_vec());
        Ok(())
    }

    fn replace(
        &mut self,
        path: &[u8],
        new: &ReplacementContent<'_>,
        judged: Option<&FileAttributes>,
    ) -> Result<(), ApplySkip> {
        if let Some(export) = &self.export {
            export.put(path, new, judged, self.making)?;
        }
        self.done.changed.push(path.to_vec());
        Ok(())
    }

    fn set_mode(&self, path: &[u8], mode: u32) -> Result<(), ApplySkip> {
        if let Some(export) = &self.export {
            export.set_attributes(path, &AttributeChange { mode: Some(mode), ..AttributeChange::default() })?;
        }
        Ok(())
    }

    /// Creates the missing parent folders of a path.
    fn parents(&self, path: &[u8]) -> Result<(), ApplySkip> {
        let Some(export) = &self.export else { return Ok(()) };
        for (end, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &path[..end];
            if self.folder.find_optional(above)?.is_none() {
                let mode = unshared(self.copy.find(above)?.attributes.mode & 0o777);
                export.make_dir(above, mode)?;
                self.set_mode(above, mode)?;
            }
        }
        Ok(())
    }

    /// Says what a person can do about a conflict in a repository.
    fn conflict(&self, path: &[u8]) -> String {
        let Some((_, names)) = inside(path) else { return EDITED.to_owned() };
        let is_ref = names.first() == Some(&&b"refs"[..]);
        let value = version::text(&self.copy, path, MAX_REF).ok().flatten().filter(|_| is_ref);
        let commit = value.and_then(|value| String::from_utf8(value).ok()).filter(|value| !value.starts_with("ref:"));
        match commit {
            Some(commit) => format!(
                "{EDITED_GIT}; the remote's commit is there: commit what was applied, then git merge {}",
                commit.trim()
            ),
            None => EDITED_GIT.to_owned(),
        }
    }

    fn keep(&mut self, path: &[u8], skip: ApplySkip) {
        let path = show(path);
        self.done.result.kept.push(match skip {
            ApplySkip::Conflict { reason, hunks } => UnappliedPath { path, reason, conflict: true, hunks },
            ApplySkip::Refused(ExportRefusal::Changed) => {
                UnappliedPath { path, reason: JUST_NOW.to_owned(), conflict: true, hunks: Vec::new() }
            }
            ApplySkip::Refused(refusal) => {
                UnappliedPath { path, reason: refusal.to_string(), conflict: false, hunks: Vec::new() }
            }
        });
    }
}

/// Whether this says where a branch is, or was. The remote's version would take the person's own commits off it.
fn is_branch(path: &[u8]) -> bool {
    let names = inside(path).map(|(_, names)| names).unwrap_or_default();
    matches!(names.first(), Some(&b"refs" | &b"logs" | &b"HEAD" | &b"packed-refs"))
}

/// The paths that a request names.
struct Selection {
    below: Vec<ExportPath>,
    exact: Vec<ExportPath>,
}

// === impl Selection ===

impl Selection {
    /// Whether a path is applied, and if so, whether it only goes along with others.
    fn takes(&self, place: &ExportPath, entry: &LeaseRecordEntry, is_new_object: bool) -> Option<bool> {
        let mut all = self.below.iter().chain(&self.exact);
        let is_named = self.below.iter().any(|one| one == place || place.is_below(one)) || self.exact.contains(place);
        if is_named || (self.below.is_empty() && self.exact.is_empty()) {
            return Some(false);
        }
        if is_new_object {
            // Commits need them.
            let git = inside(place.whole()).map(|(git, _)| git);
            return all.any(|one| inside(one.whole()).map(|(git, _)| git) == git).then_some(true);
        }
        // A folder is removed with the last of what was in it.
        let was_folder = matches!(entry.was, PathBefore::Folder { .. });
        (was_folder && all.any(|one| one.is_below(place))).then_some(true)
    }
}

// === impl ApplyOrder ===

impl ApplyOrder {
    fn of(path: &[u8], is_new_object: bool, theirs: &PathVersion) -> Self {
        match theirs {
            _ if is_new_object => Self::Object { is_index: path.ends_with(b".idx") },
            PathVersion::Absent if inside(path).is_some() => Self::GitRemoval,
            _ if inside(path).is_some() => Self::Git,
            PathVersion::Absent => Self::Removal,
            _ => Self::Entry,
        }
    }
}

// === impl ApplySkip ===

impl ApplySkip {
    fn conflict(reason: impl Into<String>) -> Self {
        Self::Conflict { reason: reason.into(), hunks: Vec::new() }
    }
}

impl From<ExportRefusal> for ApplySkip {
    fn from(refusal: ExportRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<io::Error> for ApplySkip {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.into())
    }
}

impl From<rustix::io::Errno> for ApplySkip {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Refused(errno.into())
    }
}
