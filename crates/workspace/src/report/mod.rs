//! What a lease changed in the folder that was lent: told to its owner, shown as a diff, and taken back.
//!
//! All of it is made from the lease's [`Record`] and the originals kept beside it, so it costs what was touched and not what
//! the folder holds. The folder's content is not trusted here either: it is reached through the same confined handles.

mod autorun;
mod binary;
mod compare;
mod diff;
pub mod git;
mod restore;
mod revert;

use std::{io, path::Path};

use attache_protocol::wire::delegation::{ChangedPath, DiffStat, FileChangeKind, FolderChanges};

use self::{
    autorun::AutorunPatterns,
    compare::{PathDifference, PathNow, differences},
};
pub use self::{
    diff::{NOT_SHOWN, REVIEW_FIRST, diff, header},
    revert::revert,
};
use crate::export::{ExportError, LeaseRecord, root::ExportRoot, show};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Folder(#[from] ExportError),
    #[error("the folder of originals cannot be read: {0}; restore it, or see what changed with git")]
    Before(io::Error),
    #[error("`{0}` is not a path below the folder")]
    NotBelow(String),
    #[error("the lease did not change `{0}`")]
    Untouched(String),
}

/// `changed_paths` is cut after so many.
const MAX_CHANGED_PATHS: usize = 1000;

/// What differs from the time before the lease. Works while the lease lasts, too.
pub fn changes(dir: &Path, record: &LeaseRecord) -> Result<FolderChanges, Error> {
    let root = ExportRoot::open(dir)?;
    let found = differences(&root, record);
    let mut told = FolderChanges { truncated: found.len() > MAX_CHANGED_PATHS, ..FolderChanges::default() };
    let mut budget = diff::DiffBudget::default();
    let planted = AutorunPatterns::new()?;
    for difference in &found {
        let lines = diff::count(&root, record, difference, &mut budget);
        let (added, removed) = lines.unzip();
        told.diff_stat = DiffStat {
            files_changed: told.diff_stat.files_changed + 1,
            insertions: told.diff_stat.insertions + added.unwrap_or(0),
            deletions: told.diff_stat.deletions + removed.unwrap_or(0),
        };
        if told.changed_paths.len() < MAX_CHANGED_PATHS {
            told.changed_paths.push(ChangedPath {
                path: show(difference.path),
                change: difference.change,
                added,
                removed,
                also_changed_here: difference.also_changed_here(),
                run_by: difference.run_by(&planted).map(str::to_owned),
            });
        }
    }
    Ok(told)
}

impl PathDifference<'_> {
    fn also_changed_here(&self) -> bool {
        let is_still = match &self.now {
            PathNow::Absent => self.entry.left.is_unchanged(None),
            PathNow::Is(attributes) => self.entry.left.is_unchanged(Some(attributes)),
            PathNow::Unseen(_) => true,
        };
        self.entry.changed_here || !is_still
    }

    /// Who runs what the remote put there. What is gone runs no more.
    fn run_by(&self, planted: &AutorunPatterns) -> Option<&'static str> {
        let is_there = self.change != FileChangeKind::Removed && self.is_content();
        is_there.then(|| planted.run_by(self.path)).flatten()
    }

    const fn is_content(&self) -> bool {
        !matches!(self.change, FileChangeKind::Attributes)
    }
}
