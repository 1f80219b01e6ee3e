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
    /// About what all of it takes in memory.
    bytes: usize,
    /// When what was in a folder was last reported as gone. Of an older listing nothing is true any more.
    gone: HashMap<Vec<u8>, Stamp>,
    /// Something was reported since the view was last looked at.
    has_news: bool,
    /// Files that were never completed, because their folder moved meanwhile.
    leftovers: BTreeSet<Vec<u8>>,
    is_complete: bool,
}

#[derive(Debug, Clone, Copy)]
struct ListedFolder {
    inode: u64,
    is_watched: bool,
}

/// The most that a host can make us remember, and what an entry takes besides its names.
const MAX_BYTES: usize = 512 << 20;
const PER_ENTRY: usize = 250;

fn bytes_of(length: usize, entry: Option<&FsEntry>) -> usize {
    PER_ENTRY + length + entry.and_then(|entry| entry.target.as_ref()).map_or(0, Vec::len)
}

/// A folder's path, kept once more.
const fn bytes_of_key(path: &[u8]) -> usize {
    PER_ENTRY + path.len()
}

fn bytes_of_names(names: &BTreeSet<Vec<u8>>) -> usize {
    names.iter().map(|name| bytes_of(name.len(), None)).sum()
}

// === impl HostView ===

impl HostView {
    /// The host has reported more than can be kept in memory.
    pub(super) const fn is_too_large(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// What is there, as far as it is carried.
    pub(super) fn get(&self, path: &[u8]) -> Option<&FsEntry> {
        let entry = self.entries.get(path)?.1.as_ref()?;
        (entry.attributes.kind != FileKind::Special).then_some(entry)
    }

    /// The whole tree was reported once.
    pub(super) const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Everything that is there, as far as it is carried.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Vec<u8>, &FsEntry)> {
        self.entries.keys().filter_map(|path| Some((path, self.get(path)?)))
    }

    /// Whether something was reported since the last time.
    pub(super) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.has_news, false)
    }

    pub(super) fn take_leftovers(&mut self) -> BTreeSet<Vec<u8>> {
        self.bytes -= bytes_of_names(&self.leftovers);
        std::mem::take(&mut self.leftovers)
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_news || !self.leftovers.is_empty()
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
        let root = (!self.listed.contains_key(&b""[..])).then(Vec::new);
        root.into_iter().chain(self.entries.iter().filter(is_missing).map(|(path, _)| path.clone())).collect()
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
                // What was left over is found again.
                *self = Self { has_news: true, ..Self::default() };
            }
            FsEvent::TreeComplete => self.is_complete = true,
            _ => {}
        }
    }

    /// What a path is after a change of ours, which is no news.
    pub(super) fn set_own(&mut self, path: &[u8], stamp: Stamp, entry: Option<FsEntry>) {
        let had_news = self.has_news;
        self.set(path.to_vec(), stamp, entry);
        self.has_news = had_news;
    }

    /// What a path is now.
    fn set(&mut self, path: Vec<u8>, stamp: Stamp, entry: Option<FsEntry>) {
        if is_staged(&path) {
            let bytes = PER_ENTRY + path.len();
            match entry {
                Some(_) if self.leftovers.insert(path.clone()) => self.bytes += bytes,
                None if self.leftovers.remove(&path) => self.bytes -= bytes,
                _ => {}
            }
            return;
        }
        if !is_carried(&path) || self.entries.get(&path).is_some_and(|(known, _)| *known > stamp) {
            return;
        }
        if entry.as_ref().is_none_or(|entry| entry.attributes.kind != FileKind::Folder) {
            // Not forgotten: an older report about them may still be on its way.
            for below in self.below(&path) {
                self.end_folder(&below, stamp);
                self.insert(below, stamp, None);
            }
            self.end_folder(&path, stamp);
        }
        let known = self.insert(path, stamp, entry.clone());
        self.has_news |= known != entry;
    }

    fn insert(&mut self, path: Vec<u8>, stamp: Stamp, entry: Option<FsEntry>) -> Option<FsEntry> {
        let length = path.len();
        self.bytes += bytes_of(length, entry.as_ref());
        let (_, known) = self.entries.insert(path, (stamp, entry))?;
        self.bytes -= bytes_of(length, known.as_ref());
        known
    }

    /// What was in a folder isn't there any more.
    fn end_folder(&mut self, path: &[u8], stamp: Stamp) {
        let was_folder = |(_, entry): &(Stamp, Option<FsEntry>)| {
            entry.as_ref().is_some_and(|entry| entry.attributes.kind == FileKind::Folder)
        };
        if (self.unlist(path) || self.entries.get(path).is_some_and(was_folder))
            && self.gone.insert(path.to_vec(), stamp).is_none()
        {
            self.bytes += bytes_of_key(path);
        }
        self.end_listing(path);
    }

    /// Whether its entries were known.
    fn unlist(&mut self, path: &[u8]) -> bool {
        let was_listed = self.listed.remove(path).is_some();
        self.bytes -= if was_listed { bytes_of_key(path) } else { 0 };
        was_listed
    }

    /// The names of a listing so far.
    fn end_listing(&mut self, folder: &[u8]) -> BTreeSet<Vec<u8>> {
        let Some((_, names)) = self.begun.remove(folder) else { return BTreeSet::new() };
        self.bytes -= bytes_of_key(folder) + bytes_of_names(&names);
        names
    }

    /// Whether it was reported as a folder, so that its entries are asked for.
    fn is_known_folder(&self, path: &[u8]) -> bool {
        path.is_empty() || self.get(path).is_some_and(|entry| entry.attributes.kind == FileKind::Folder)
    }

    /// The host says something else about a path than was reported. Its folder has to be listed again: which of the two is
    /// newer can't be known.
    pub(super) fn doubt(&mut self, path: &[u8]) {
        self.unlist(parent_and_name(path).0);
    }

    /// Nobody may look into a folder, so it isn't carried.
    pub(super) fn forget(&mut self, path: &[u8]) {
        for gone in self.below(path).into_iter().chain([path.to_vec()]) {
            self.unlist(&gone);
            self.end_listing(&gone);
            if let Some((_, known)) = self.entries.remove(&gone) {
                self.bytes -= bytes_of(gone.len(), known.as_ref());
            }
        }
        self.has_news = true;
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
        // Unrequested content isn't remembered: once the folder is known, it is requested.
        if !self.is_known_folder(&folder) || self.gone.get(&folder).is_some_and(|gone| *gone > stamp) {
            return;
        }
        if !self.begun.contains_key(&folder) {
            self.bytes += bytes_of_key(&folder);
        }
        let begun = self.begun.entry(folder.clone()).or_default();
        if begun.0 != stamp {
            self.bytes -= bytes_of_names(&begun.1);
            *begun = (stamp, BTreeSet::new());
        }
        for (name, _) in &entries {
            if begun.1.insert(name.clone()) {
                self.bytes += bytes_of(name.len(), None);
            }
        }
        for (name, entry) in entries {
            if is_name(&name) {
                self.set(join(&folder, &name), stamp, Some(entry));
            }
        }
        if is_last {
            let names = self.end_listing(&folder);
            let is_in = |path: &Vec<u8>| parent_and_name(path).0 == folder.as_slice();
            let known = if folder.is_empty() { self.entries.keys().cloned().collect() } else { self.below(&folder) };
            for path in known.into_iter().filter(is_in) {
                if !names.contains(parent_and_name(&path).1) {
                    self.set(path, stamp, None);
                }
            }
            if self.gone.remove(&folder).is_some() {
                self.bytes -= bytes_of_key(&folder);
            }
            let length = folder.len();
            if self.listed.insert(folder, ListedFolder { inode: own.inode, is_watched }).is_none() {
                self.bytes += PER_ENTRY + length;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        export::FileTime,
        fs_wire::{FsAttributes, FsTreeChange},
    };

    fn attributes(kind: FileKind, inode: u64) -> FsAttributes {
        let time = FileTime::default();
        FsAttributes { kind, mode: 0o644, links: 1, inode, size: 1, accessed: time, modified: time, changed: time }
    }

    fn entry(kind: FileKind, inode: u64) -> FsEntry {
        FsEntry { attributes: attributes(kind, inode), target: None }
    }

    fn listing(path: &str, stamp: Stamp, entries: &[(&str, FsEntry)]) -> FsEvent {
        FsEvent::Listing(FsListing {
            id: 0,
            path: path.as_bytes().to_vec(),
            stamp,
            is_watched: true,
            is_last: true,
            own: attributes(FileKind::Folder, 20),
            entries: entries.iter().map(|(name, entry)| (name.as_bytes().to_vec(), entry.clone())).collect(),
        })
    }

    fn change(name: &str, stamp: Stamp, entry: Option<FsEntry>) -> FsEvent {
        let own = attributes(FileKind::Folder, 1);
        FsEvent::Changed(FsTreeChange { stamp, folder: Vec::new(), own, name: name.as_bytes().to_vec(), entry })
    }

    /// Its number says nothing: a new folder often gets that of a removed one.
    #[test]
    fn a_folder_that_was_made_again_is_listed_again() {
        let (d, file) = (entry(FileKind::Folder, 20), entry(FileKind::File, 30));
        let mut view = HostView::default();
        view.apply(listing("", 1, &[("d", d.clone())]));
        view.apply(listing("d", 2, &[("old", file.clone())]));
        assert_eq!(view.unlisted(), Vec::<Vec<u8>>::new());
        view.apply(change("d", 4, None));
        view.apply(change("d", 5, Some(d)));
        // It was on its way.
        view.apply(listing("d", 3, &[("old", file.clone()), ("older", file.clone())]));
        assert_eq!(view.unlisted(), [b"d"]);
        assert!(view.get(b"d/old").is_none() && view.get(b"d/older").is_none());
        view.apply(listing("d", 6, &[("new", file)]));
        assert!(view.unlisted().is_empty() && view.get(b"d/new").is_some());
    }

    #[test]
    fn a_path_in_doubt_has_its_folder_listed_again() {
        let mut view = HostView::default();
        let both = [("d", entry(FileKind::Folder, 20)), ("file", entry(FileKind::File, 30))];
        view.apply(listing("", 1, &both));
        view.apply(listing("d", 2, &[]));
        view.doubt(b"file");
        assert_eq!(view.unlisted(), [b""]);
        view.apply(listing("", 3, &both[..1]));
        assert!(view.unlisted().is_empty() && view.get(b"file").is_none());
    }

    #[test]
    fn what_a_host_can_make_us_remember_is_limited() {
        let file = entry(FileKind::File, 30);
        let mut view = HostView::default();
        let many: Vec<(String, FsEntry)> = (0..1000).map(|number| (format!("f{number}"), file.clone())).collect();
        let many: Vec<(&str, FsEntry)> = many.iter().map(|(name, entry)| (name.as_str(), entry.clone())).collect();
        let mut bytes = None;
        // The same again costs nothing.
        for stamp in 1..10 {
            view.apply(listing("", stamp * 10, &many));
            view.apply(listing("", stamp * 10 + 1, &many[..1]));
            assert!(*bytes.get_or_insert(view.bytes) == view.bytes && !view.is_too_large());
        }
        let FsEvent::Listing(endless) = listing("", 200, &[]) else { return };
        for number in 0..3000_u32 {
            let entries = (0..1000).map(|at| (format!("{number}-{at}").into_bytes(), file.clone())).collect();
            view.apply(FsEvent::Listing(FsListing { is_last: false, entries, ..endless.clone() }));
            if view.is_too_large() {
                return;
            }
        }
        panic!("a listing without an end");
    }

    /// A listing in parts without an end, a finished one of any path, or a folder that comes and goes.
    #[test]
    fn what_was_not_asked_for_is_not_remembered_and_all_else_is_counted() {
        let mut view = HostView::default();
        view.apply(listing("", 1, &[]));
        let before = view.bytes;
        let FsEvent::Listing(part) = listing("", 2, &[]) else { return };
        let unknown = |number: u32| format!("{number}-{}", "x".repeat(4000)).into_bytes();
        for number in 0..1000 {
            view.apply(FsEvent::Listing(FsListing { path: unknown(number), is_last: false, ..part.clone() }));
            view.apply(FsEvent::Listing(FsListing { path: unknown(number), ..part.clone() }));
        }
        let kept = |view: &HostView| (view.begun.len(), view.listed.len(), view.gone.len());
        assert_eq!((view.bytes, kept(&view)), (before, (0, 1, 0)));
        let folder = entry(FileKind::Folder, 20);
        let long = "d".repeat(200);
        view.apply(change(&long, 3, Some(folder.clone())));
        let known = view.bytes;
        view.apply(FsEvent::Listing(FsListing { path: long.clone().into_bytes(), is_last: false, ..part }));
        assert_eq!((view.bytes, kept(&view)), (known + PER_ENTRY + 200, (1, 1, 0)));
        view.apply(listing(&long, 4, &[]));
        assert_eq!((view.bytes, kept(&view)), (known + PER_ENTRY + 200, (0, 2, 0)));
        view.apply(change(&long, 5, None));
        assert_eq!((view.bytes, kept(&view)), (known + PER_ENTRY + 200, (0, 1, 1)));
        // Each time the same folder comes, is listed and goes, no more is kept.
        for stamp in 2..50 {
            view.apply(change(&long, stamp * 10, Some(folder.clone())));
            view.apply(listing(&long, stamp * 10 + 1, &[("file", entry(FileKind::File, 30))]));
            view.apply(change(&long, stamp * 10 + 2, None));
        }
        assert_eq!(kept(&view), (0, 1, 1));
        let counted: usize = view.entries.iter().map(|(path, (_, entry))| bytes_of(path.len(), entry.as_ref())).sum();
        let keys = view.begun.keys().chain(view.listed.keys()).chain(view.gone.keys());
        assert_eq!(view.bytes, counted + keys.map(|path| bytes_of_key(path)).sum::<usize>());
    }

    #[test]
    fn only_what_is_new_is_news() {
        let file = entry(FileKind::File, 30);
        let mut view = HostView::default();
        view.apply(change("file", 1, Some(file.clone())));
        assert!(view.take_news() && !view.has_changed());
        view.apply(change("file", 2, Some(file)));
        view.set_own(b"other", 3, Some(entry(FileKind::File, 31)));
        assert!(!view.has_changed());
        view.apply(FsEvent::Reset);
        assert!(view.has_changed() && !view.is_complete() && view.get(b"file").is_none());
    }
}
