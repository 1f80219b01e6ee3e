//! The host's tree, as it was reported. Of two reports about a path, the one with the greater stamp counts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Bound,
};

use super::paths::{is_carried, is_name, is_staged, join, parent_and_name};
use crate::{
    export::FileKind,
    fs_wire::{FsEntry, FsEvent, FsListing, Stamp},
};

#[derive(Debug, Default)]
pub(super) struct HostView {
    entries: BTreeMap<Vec<u8>, (Stamp, Option<FsEntry>)>,
    /// Folders whose entries are known.
    listed: BTreeMap<Vec<u8>, ListedFolder>,
    /// Folders that are listed in parts: the names so far.
    begun: HashMap<Vec<u8>, (Stamp, BTreeSet<Vec<u8>>)>,
    /// Paths of which something was reported since they were last taken.
    changed: BTreeSet<Vec<u8>>,
    /// Files that were never completed, because their folder moved meanwhile.
    leftovers: BTreeSet<Vec<u8>>,
    is_complete: bool,
}

#[derive(Debug, Clone, Copy)]
struct ListedFolder {
    inode: u64,
    is_watched: bool,
}

// === impl HostView ===

impl HostView {
    /// What is there, as far as it is carried.
    pub(super) fn get(&self, path: &[u8]) -> Option<&FsEntry> {
        let entry = self.entries.get(path)?.1.as_ref()?;
        (entry.attributes.kind != FileKind::Special).then_some(entry)
    }

    /// The whole tree was reported once.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn take_changed(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.changed)
    }

    pub(super) fn take_leftovers(&mut self) -> BTreeSet<Vec<u8>> {
        std::mem::take(&mut self.leftovers)
    }

    pub(super) fn has_changed(&self) -> bool {
        !self.changed.is_empty() || !self.leftovers.is_empty()
    }

    /// Looks at a path again.
    pub(super) fn mark(&mut self, path: &[u8]) {
        self.changed.insert(path.to_vec());
    }

    /// The bytes of all files.
    pub(super) fn total_size(&self) -> u64 {
        let files = self.entries.values().filter_map(|(_, entry)| entry.as_ref());
        files
            .filter(|entry| entry.attributes.kind == FileKind::File)
            .fold(0, |sum, entry| sum.saturating_add(entry.attributes.size))
    }

    /// Folders that have to be asked for.
    pub(super) fn unlisted(&self) -> Vec<Vec<u8>> {
        let is_missing = |(path, (_, entry)): &(&Vec<u8>, &(Stamp, Option<FsEntry>))| {
            let folder = entry.as_ref().filter(|entry| entry.attributes.kind == FileKind::Folder);
            folder.is_some_and(|folder| {
                self.listed.get(*path).is_none_or(|listed| listed.inode != folder.attributes.inode)
            })
        };
        self.entries.iter().filter(is_missing).map(|(path, _)| path.clone()).collect()
    }

    /// Folders whose changes aren't reported.
    pub(super) fn unwatched(&self) -> Vec<Vec<u8>> {
        self.listed.iter().filter(|(_, listed)| !listed.is_watched).map(|(path, _)| path.clone()).collect()
    }

    pub(super) fn apply(&mut self, event: FsEvent) {
        match event {
            FsEvent::Listing(listing) => self.apply_listing(listing),
            FsEvent::Changed(change) if is_name(&change.name) => {
                self.set(join(&change.folder, &change.name), change.stamp, change.entry);
            }
            FsEvent::Reset => {
                self.changed.extend(std::mem::take(&mut self.entries).into_keys());
                self.listed.clear();
                self.begun.clear();
                self.is_complete = false;
            }
            FsEvent::TreeComplete => self.is_complete = true,
            _ => {}
        }
    }

    /// What a path is now.
    pub(super) fn set(&mut self, path: Vec<u8>, stamp: Stamp, entry: Option<FsEntry>) {
        if is_staged(&path) {
            match entry {
                Some(_) => self.leftovers.insert(path),
                None => self.leftovers.remove(&path),
            };
            return;
        }
        if !is_carried(&path) || self.entries.get(&path).is_some_and(|(known, _)| *known > stamp) {
            return;
        }
        if entry.as_ref().is_none_or(|entry| entry.attributes.kind != FileKind::Folder) {
            // Not forgotten: an older report about them may still be on its way.
            for below in self.below(&path) {
                self.listed.remove(&below);
                self.changed.insert(below.clone());
                self.entries.insert(below, (stamp, None));
            }
            self.listed.remove(&path);
        }
        self.changed.insert(path.clone());
        self.entries.insert(path, (stamp, entry));
    }

    /// It isn't known any more whether something is there.
    pub(super) fn forget(&mut self, path: &[u8]) {
        for gone in self.below(path).into_iter().chain([path.to_vec()]) {
            self.listed.remove(&gone);
            self.entries.remove(&gone);
            self.changed.insert(gone);
        }
    }

    /// Whether something is known in a folder.
    pub(super) fn has_entries(&self, folder: &[u8]) -> bool {
        self.below(folder).iter().any(|path| self.get(path).is_some())
    }

    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let start = [path, b"/"].concat();
        let from = self.entries.range::<[u8], _>((Bound::Excluded(&start[..]), Bound::Unbounded));
        from.map(|(path, _)| path).take_while(|path| path.starts_with(&start)).cloned().collect()
    }

    fn apply_listing(&mut self, listing: FsListing) {
        let FsListing { path: folder, stamp, is_watched, is_last, own, entries, .. } = listing;
        let begun = self.begun.entry(folder.clone()).or_default();
        if begun.0 != stamp {
            *begun = (stamp, BTreeSet::new());
        }
        begun.1.extend(entries.iter().map(|(name, _)| name.clone()));
        for (name, entry) in entries {
            if is_name(&name) {
                self.set(join(&folder, &name), stamp, Some(entry));
            }
        }
        if is_last {
            let (_, names) = self.begun.remove(&folder).unwrap_or_default();
            let is_in = |path: &Vec<u8>| parent_and_name(path).0 == folder.as_slice();
            let known = if folder.is_empty() { self.entries.keys().cloned().collect() } else { self.below(&folder) };
            for path in known.into_iter().filter(is_in) {
                if !names.contains(parent_and_name(&path).1) {
                    self.set(path, stamp, None);
                }
            }
            self.listed.insert(folder, ListedFolder { inode: own.inode, is_watched });
        }
    }
}
