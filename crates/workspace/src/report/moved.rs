//! Files that somebody on this machine moved after the lease had changed them. Under their new names they hold what the
//! remote wrote, and the record doesn't know these names.

use std::collections::BTreeMap;

use super::compare::is_change;
use crate::export::{FileKind, LeaseRecord, PathAfter, root::ExportRoot, show};

/// A changed file and where it is now.
pub(super) struct MovedFile {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

/// Starts the line that names such a file.
pub const MOVED_HERE: &str = "# moved on this machine, with the remote's changes in it: ";

/// Finds them by their inode numbers. The folder is only searched if something isn't where the lease left it.
pub(super) fn moved_here(root: &ExportRoot, record: &LeaseRecord) -> Vec<MovedFile> {
    let mut missing: BTreeMap<u64, (&[u8], &PathAfter)> = BTreeMap::new();
    for (path, entry) in record.entries.iter().filter(|(path, entry)| is_change(path, entry)) {
        let Some(inode) = entry.left.inode() else { continue };
        let now = root.find_optional(path).ok().flatten();
        if now.is_none_or(|now| now.attributes.inode != inode) {
            missing.insert(inode, (path, &entry.left));
        }
    }
    let mut moved = Vec::new();
    if missing.is_empty() {
        return moved;
    }
    let searched = root.walk(b"", |path, attributes| {
        // Another file may have got the number of a removed one, so it must be as the lease left it.
        if let Some((from, left)) = missing.get(&attributes.inode)
            && attributes.kind == FileKind::File
            && left.is_unchanged(Some(attributes))
        {
            moved.push(MovedFile { from: from.to_vec(), to: path.to_vec() });
        }
        Ok(true)
    });
    if let Err(error) = searched {
        tracing::debug!(%error, "the search for moved files is incomplete");
    }
    moved.sort_by(|one, other| one.to.cmp(&other.to));
    moved
}

impl std::fmt::Display for MovedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (before: {})", show(&self.to), show(&self.from))
    }
}
