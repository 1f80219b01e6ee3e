//! What a lease changed in the exported folder: reported to its owner, shown as a diff, and reverted.
//!
//! Everything is made from the lease's [`LeaseRecord`] and the originals kept with it, so its cost depends on what was
//! touched, not on the size of the folder. The folder's content isn't trusted here either: it is accessed through the
//! same confined handles.

mod autorun;
mod binary;
mod compare;
mod diff;
pub mod git;
mod hunks;
mod moved;
mod rename;
mod restore;
mod revert;
mod review;

use std::{
    io,
    path::{Path, PathBuf},
};

use attache_protocol::wire::delegation::{ChangedPath, DiffStat, FileChangeKind, FolderChanges};

use self::{
    autorun::AutorunPatterns,
    compare::{PathDifference, PathNow},
};
pub(crate) use self::{
    compare::{difference, differences, is_change, open_original},
    revert::resolve_paths,
    review::state_at,
};
pub use self::{
    diff::{IN_REPOSITORY, NOT_SHOWN, REVIEW_FIRST, diff, diff_of, header},
    moved::MOVED_HERE,
    rename::split_renames,
    revert::revert,
    review::{AcceptedStates, accepted, check_states, review, review_file},
};
use crate::export::{ExportError, LeaseRecord, is_of_repository, root::ExportRoot, show};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Folder(#[from] ExportError),
    #[error("can't read the folder of originals: {0}; restore it, or check the changes with git")]
    Before(io::Error),
    #[error("{} now contains a symbolic link, so it isn't the folder that was delegated", .0.display())]
    Replaced(PathBuf),
    #[error("`{0}` is not a path below the folder")]
    NotBelow(String),
    #[error("the lease did not change `{0}`")]
    Untouched(String),
    #[error("`{0}` has changed since you looked at it")]
    Changed(String),
    #[error("`{path}` has no hunk {number}")]
    NoHunk { path: String, number: usize },
    #[error("hunks are discarded alone: without other paths, and without your own version of the file")]
    HunksAlone,
}

/// `changed_paths` is cut off after this many.
const MAX_CHANGED_PATHS: usize = 1000;

/// The folder where it was lent. A link in its place would lead to something that the lease had nothing to do with, and
/// perhaps to a place from which git runs programs.
pub(crate) fn open_root(dir: &Path) -> Result<ExportRoot, Error> {
    if dir.canonicalize().is_ok_and(|real| real != dir) || is_of_repository(dir) {
        return Err(Error::Replaced(dir.to_owned()));
    }
    Ok(ExportRoot::open(dir)?)
}

/// The differences from the state before the lease. Also works during the lease.
pub fn changes(dir: &Path, record: &LeaseRecord) -> Result<FolderChanges, Error> {
    let root = open_root(dir)?;
    let found = differences(&root, record);
    let mut changes = FolderChanges { truncated: found.len() > MAX_CHANGED_PATHS, ..FolderChanges::default() };
    let mut budget = diff::DiffBudget::default();
    let planted = AutorunPatterns::new()?;
    for difference in &found {
        let lines = diff::count(&root, record, difference, &mut budget);
        let (added, removed) = lines.unwrap_or_default();
        changes.diff_stat = DiffStat {
            files_changed: changes.diff_stat.files_changed + 1,
            insertions: changes.diff_stat.insertions + added,
            deletions: changes.diff_stat.deletions + removed,
        };
        if changes.changed_paths.len() < MAX_CHANGED_PATHS {
            changes.changed_paths.push(difference.changed_path(lines, &planted));
        }
    }
    Ok(changes)
}

impl PathDifference<'_> {
    fn changed_path(&self, lines: Option<(u64, u64)>, planted: &AutorunPatterns) -> ChangedPath {
        let (added, removed) = lines.unzip();
        ChangedPath {
            path: show(self.path),
            change: self.change,
            added,
            removed,
            also_changed_here: self.also_changed_here(),
            run_by: self.run_by(planted).map(str::to_owned),
        }
    }

    fn also_changed_here(&self) -> bool {
        let is_still = match &self.now {
            PathNow::Absent => self.entry.left.is_unchanged(None),
            PathNow::Is(attributes) => self.entry.left.is_unchanged(Some(attributes)),
            PathNow::Unseen(_) => true,
        };
        self.entry.changed_here || !is_still
    }

    /// The program that would run what the remote put there. Removed files don't run.
    fn run_by(&self, planted: &AutorunPatterns) -> Option<&'static str> {
        let is_there = self.change != FileChangeKind::Removed && self.is_content();
        is_there.then(|| planted.run_by(self.path)).flatten()
    }

    const fn is_content(&self) -> bool {
        !matches!(self.change, FileChangeKind::Attributes)
    }
}
