//! Reading a folder in batches, without what the lease does not show.

use std::{fmt, sync::Arc};

use rustix::fs::OFlags;

use super::{
    Export, Inner, Refusal,
    attributes::Attributes,
    path::{Place, join},
    root::{Names, entries},
};

/// A folder that is being read.
pub struct Directory {
    inner: Arc<Inner>,
    path: Vec<u8>,
    entries: Names,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub name: Vec<u8>,
    pub attributes: Attributes,
}

impl Export {
    pub fn read_dir(&self, path: &[u8]) -> Result<Directory, Refusal> {
        self.0.begin()?;
        let place = Place::parse(path)?;
        let found = self.0.see(&place)?;
        if !found.attributes.is_folder() {
            return Err(Refusal::NotADirectory);
        }
        let entries = entries(found.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?;
        Ok(Directory { inner: Arc::clone(&self.0), path: place.whole().to_vec(), entries })
    }
}

// === impl Directory ===

impl Directory {
    /// Up to `most` entries; none when all have been told. `.` and `..` are not among them.
    pub fn next_batch(&mut self, most: usize) -> Result<Vec<Entry>, Refusal> {
        self.inner.begin()?;
        let mut batch = Vec::new();
        while batch.len() < most {
            let Some(entry) = self.entries.next() else { break };
            let (name, attributes) = entry?;
            // What is mounted here cannot be entered, so it is not shown either.
            if attributes.mount_root
                || !self.inner.filter.shows_in_shown(&join(&self.path, &name), attributes.is_folder())
            {
                continue;
            }
            batch.push(Entry { name, attributes });
        }
        self.inner.go_on()?;
        Ok(batch)
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").finish_non_exhaustive()
    }
}
