//! What a lease changed in the folder that was lent: told to its owner, shown as a diff, and taken back.
//!
//! All of it is made from the lease's [`Record`] and the originals kept beside it, so it costs what was touched and not what
//! the folder holds. The folder's content is not trusted here either: it is reached through the same confined handles.

mod binary;
mod compare;
mod diff;
pub mod git;
mod planted;
mod restore;
mod revert;

use std::{io, path::Path};

use attache_protocol::wire::delegation::{Change, ChangedPath, Changes, DiffStat};

use self::{
    compare::{Difference, Now, differences},
    planted::Planted,
};
pub use self::{
    diff::{LOOK_AT, NOT_SHOWN, diff, header},
    revert::revert,
};
use crate::export::{Record, Unexportable, root::Root, show};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Folder(#[from] Unexportable),
    #[error("the folder of originals cannot be read: {0}; restore it, or see what changed with git")]
    Before(io::Error),
    #[error("`{0}` is not a path below the folder")]
    NotBelow(String),
    #[error("the lease did not change `{0}`")]
    Untouched(String),
}

/// `changed_paths` is cut after so many.
const TOLD: usize = 1000;

/// What differs from the time before the lease. Works while the lease lasts, too.
pub fn changes(dir: &Path, record: &Record) -> Result<Changes, Error> {
    let root = Root::open(dir)?;
    let found = differences(&root, record);
    let mut told = Changes { truncated: found.len() > TOLD, ..Changes::default() };
    let mut budget = diff::Budget::default();
    let planted = Planted::new()?;
    for difference in &found {
        let lines = diff::count(&root, record, difference, &mut budget);
        let (added, removed) = lines.unzip();
        told.diff_stat = DiffStat {
            files_changed: told.diff_stat.files_changed + 1,
            insertions: told.diff_stat.insertions + added.unwrap_or(0),
            deletions: told.diff_stat.deletions + removed.unwrap_or(0),
        };
        if told.changed_paths.len() < TOLD {
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

impl Difference<'_> {
    fn also_changed_here(&self) -> bool {
        let is_still = match &self.now {
            Now::Absent => self.entry.left.still(None),
            Now::Is(attributes) => self.entry.left.still(Some(attributes)),
            Now::Unseen(_) => true,
        };
        self.entry.changed_here || !is_still
    }

    /// Who runs what the remote put there. What is gone runs no more.
    fn run_by(&self, planted: &Planted) -> Option<&'static str> {
        let is_there = self.change != Change::Removed && self.is_content();
        is_there.then(|| planted.run_by(self.path)).flatten()
    }

    const fn is_content(&self) -> bool {
        !matches!(self.change, Change::Attributes)
    }
}
