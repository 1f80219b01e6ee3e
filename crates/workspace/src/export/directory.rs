//! Reads a folder in batches, without hidden entries.

use std::{fmt, sync::Arc};

use attache_os::folder_watcher::FolderWatcher;
use rustix::fs::OFlags;

use super::{
    Export, ExportRefusal, ExportShared, FileAttributes, FileKind,
    path::{ExportPath, join},
    root::{DirectoryEntries, entries},
};

/// A folder that is being read.
pub struct ExportDirectory {
    inner: Arc<ExportShared>,
    path: Vec<u8>,
    entries: DirectoryEntries,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    pub name: Vec<u8>,
    pub attributes: FileAttributes,
}

impl Export {
    pub fn read_dir(&self, path: &[u8]) -> Result<ExportDirectory, ExportRefusal> {
        self.0.begin()?;
        let place = ExportPath::parse(path)?;
        let found = self.0.find_shown(&place)?;
        if !found.attributes.is_folder() {
            return Err(ExportRefusal::NotADirectory);
        }
        let entries = entries(found.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        Ok(ExportDirectory { inner: Arc::clone(&self.0), path: place.whole().to_vec(), entries })
    }
}

impl Export {
    /// Watches a visible folder. The number identifies it in the events of this watcher.
    pub(crate) fn watch_dir(&self, path: &[u8], watcher: &FolderWatcher) -> Result<i32, ExportRefusal> {
        self.0.begin()?;
        let found = self.0.find_shown(&ExportPath::parse(path)?)?;
        if !found.attributes.is_folder() {
            return Err(ExportRefusal::NotADirectory);
        }
        Ok(watcher.watch(&found)?)
    }

    /// Whether a name can be mentioned to the remote, whatever is there now.
    pub(crate) fn shows(&self, path: &[u8], kind: FileKind) -> bool {
        self.0.filter.shows(path, kind == FileKind::Folder)
    }
}

// === impl ExportDirectory ===

impl ExportDirectory {
    /// Up to `most` entries. Empty at the end. Without `.` and `..`.
    pub fn next_batch(&mut self, most: usize) -> Result<Vec<DirectoryEntry>, ExportRefusal> {
        self.inner.begin()?;
        let mut batch = Vec::new();
        while batch.len() < most {
            let Some(entry) = self.entries.next() else { break };
            let (name, attributes) = entry?;
            // Mount points inside can't be entered, so they aren't listed either.
            if attributes.mount_root
                || !self.inner.filter.shows_in_shown(&join(&self.path, &name), attributes.is_folder())
            {
                continue;
            }
            batch.push(DirectoryEntry { name, attributes });
        }
        self.inner.check_live()?;
        Ok(batch)
    }
}

impl fmt::Debug for ExportDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}
