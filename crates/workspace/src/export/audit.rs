//! The export audit: one entry per changing operation, done or refused. Consecutive writes to one open file are one
//! operation.

use super::{path::show, refusal::ExportRefusal};

/// Receives entries as they happen, on the thread of the call. The daemon appends them to `audit.jsonl`.
pub trait ExportAudit: Send + Sync {
    fn record(&self, line: &ExportAuditEntry<'_>);
}

/// Discards all entries.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoExportAudit;

#[derive(Debug, Clone, Copy)]
pub struct ExportAuditEntry<'a> {
    pub op: ExportOperation,
    /// Relative to the root, as bytes. [`ExportAuditEntry::path`] shows it.
    pub path: &'a [u8],
    /// The destination of a rename or link.
    pub to: Option<&'a [u8]>,
    /// The number of bytes written, or the new size if it was set.
    pub bytes: Option<u64>,
    pub outcome: Result<(), &'a ExportRefusal>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExportOperation {
    /// An existing file was opened for writing.
    Open,
    Create,
    Write,
    /// A file that seemed to be cut short was closed properly.
    Close,
    SetAttributes,
    MakeDir,
    RemoveDir,
    RemoveFile,
    Rename,
    Symlink,
    HardLink,
}

impl ExportAudit for NoExportAudit {
    fn record(&self, _: &ExportAuditEntry<'_>) {}
}

// === impl ExportAuditEntry ===

impl ExportAuditEntry<'_> {
    pub fn path(&self) -> String {
        show(self.path)
    }

    pub fn to(&self) -> Option<String> {
        self.to.map(show)
    }
}

// === impl ExportOperation ===

impl ExportOperation {
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
