//! The audit lines: one per changing operation, done or refused. Consecutive writes into one open file are one operation.

use super::{path::show, refusal::Refusal};

/// Gets the lines as they happen, on the thread of the call; the daemon appends them to `audit.jsonl`.
pub trait Journal: Send + Sync {
    fn record(&self, line: &Line<'_>);
}

/// A journal that keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoJournal;

#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    pub op: Op,
    /// Relative to the root, as bytes; [`Line::path`] shows it.
    pub path: &'a [u8],
    /// Where to: of a rename, a link.
    pub to: Option<&'a [u8]>,
    /// How many bytes were written; the new size when it was set.
    pub bytes: Option<u64>,
    pub outcome: Result<(), &'a Refusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// A file was opened for writing that existed.
    Open,
    Create,
    Write,
    /// A file that seemed to be cut short was closed as it should.
    Close,
    SetAttributes,
    MakeDir,
    RemoveDir,
    RemoveFile,
    Rename,
    Symlink,
    HardLink,
}

impl Journal for NoJournal {
    fn record(&self, _: &Line<'_>) {}
}

// === impl Line ===

impl Line<'_> {
    pub fn path(&self) -> String {
        show(self.path)
    }

    pub fn to(&self) -> Option<String> {
        self.to.map(show)
    }
}

// === impl Op ===

impl Op {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::Write => "write",
            Self::Close => "close",
            Self::SetAttributes => "set_attributes",
            Self::MakeDir => "make_dir",
            Self::RemoveDir => "remove_dir",
            Self::RemoveFile => "remove_file",
            Self::Rename => "rename",
            Self::Symlink => "symlink",
            Self::HardLink => "hard_link",
        }
    }
}
