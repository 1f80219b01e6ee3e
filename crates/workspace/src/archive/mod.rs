//! A folder as a ZIP archive, for implementations of AWCP that send whole copies: packed from a folder, checked before
//! anything of it is written, unpacked into an empty folder, or applied as changes to a copy of what was sent.
//!
//! `zip_reader` decides what an acceptable archive is (read this first), `zip_writer` makes one, `folder` packs and
//! unpacks, `apply` compares what came back with what was sent.

mod apply;
mod folder;
#[cfg(test)]
mod tests;
mod zip_reader;
mod zip_writer;

use std::{collections::BTreeMap, io};

use aws_lc_rs::digest::{SHA256, digest};

pub use apply::{AppliedArchive, apply};
pub use folder::{PackedFolder, pack, unpack};
pub use zip_reader::ZipArchive;

/// What an archive may contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// The size of the archive.
    pub packed: u64,
    /// Files and folders, those that only paths name included.
    pub entries: usize,
    /// The size of one file, and of all files, when unpacked.
    pub file: u64,
    pub unpacked: u64,
}

/// The files that were sent, each with its hash.
pub type SentFiles = BTreeMap<String, [u8; 32]>;

/// Checked between entries: the caller may be gone.
pub type IsCancelled<'a> = &'a dyn Fn() -> bool;

/// Why an archive is not used. Nothing of it has been written, unless the work was cancelled.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error("the archive is invalid: {0}")]
    Invalid(&'static str),
    #[error("the archive is refused: `{}` {reason}", .name.escape_debug())]
    Entry { name: String, reason: &'static str },
    #[error("the archive is refused: it has more than {most} {what}")]
    TooMuch { what: &'static str, most: u64 },
    #[error("the folder is too large for an archive: it has more than {most} {what}")]
    FolderTooLarge { what: &'static str, most: u64 },
    #[error("the delegation has ended")]
    Cancelled,
    #[error("{0}")]
    Io(#[from] io::Error),
}

// === impl ArchiveLimits ===

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { packed: 128 << 20, entries: 20_000, file: 128 << 20, unpacked: 512 << 20 }
    }
}

/// The SHA-256 of an archive in hexadecimal.
pub fn checksum(archive: &[u8]) -> String {
    attache_protocol::digest::hex(digest(&SHA256, archive).as_ref())
}

fn check_cancelled(is_cancelled: IsCancelled<'_>) -> Result<(), ArchiveError> {
    if is_cancelled() { Err(ArchiveError::Cancelled) } else { Ok(()) }
}

fn hash(content: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, content).as_ref());
    hash
}
