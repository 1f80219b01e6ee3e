//! Reports what changes on the host. Folders that were sent are watched; an event only says where to look,
//! and what is there now is sent.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use attache_os::{
    folder_event::FolderEvent,
    folder_watcher::{FolderWatcher, max_watched},
};

use super::{
    host::{FsHost, join, parent},
    outbox::FsUrgency,
    pusher::{PushBudget, push_tree},
};
use crate::{
    export::{Export, ExportRefusal, FileKind},
    fs_wire::{FsEvent, FsTreeChange},
};

pub(super) struct FsWatcher {
    /// None if the process has too many. Changes are then noticed when the client looks again.
    watcher: Option<CountedWatcher>,
    /// Locked while events are interpreted and while a folder is moved.
    folders: Mutex<WatchedFolders>,
    max_watched: usize,
}

/// The watched folders, by number.
#[derive(Debug, Default)]
pub(super) struct WatchedFolders(HashMap<i32, Vec<u8>>);

/// A watcher that counts towards [`MAX_WATCHERS`] until it is dropped.
struct CountedWatcher(FolderWatcher);

/// Of all leases in this process. The usual limit of a user is 128, and other programs need some.
const MAX_WATCHERS: usize = 32;
static WATCHERS: AtomicUsize = AtomicUsize::new(0);
/// How many folders all leases watch. Watches are shared by all programs of a user.
static WATCHED: AtomicUsize = AtomicUsize::new(0);

/// A changed name in a watched folder, or a changed folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ChangedEntry {
    /// The folder's number and its path. The client may have moved it since.
    number: i32,
    folder: Vec<u8>,
    /// `None` if it is the folder itself.
    name: Option<Vec<u8>>,
    is_folder: bool,
    has_moved: bool,
}

// === impl FsWatcher ===

impl FsWatcher {
    pub(super) fn new() -> Self {
        Self { watcher: CountedWatcher::take(), folders: Mutex::default(), max_watched: max_watched() }
    }

    /// Whether changes in a folder will be reported from now on. If the machine's limit of watches is reached, they
    /// won't.
    pub(super) fn watch(&self, export: &Export, path: &[u8]) -> Result<bool, ExportRefusal> {
        let Some(CountedWatcher(watcher)) = &self.watcher else { return Ok(false) };
        let mut folders = self.folders();
        if WATCHED.load(Ordering::Relaxed) >= self.max_watched && !folders.0.values().any(|known| known == path) {
            return Ok(false);
        }
        match export.watch_dir(path, watcher) {
            Ok(number) => {
                folders.insert(number, path.to_vec());
                Ok(true)
            }
            Err(ExportRefusal::DiskFull | ExportRefusal::Io(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// While this is held, no event is interpreted: the paths of watched folders may be about to change.
    pub(super) fn folders(&self) -> MutexGuard<'_, WatchedFolders> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wake(&self) {
        if let Some(CountedWatcher(watcher)) = &self.watcher {
            watcher.wake();
        }
    }

    /// Reports changes until the channel ends.
    pub(super) fn run(&self, host: &FsHost) {
        let Some(CountedWatcher(watcher)) = &self.watcher else { return };
        while !host.has_ended() {
            if let Err(error) = watcher.wait() {
                tracing::warn!(%error, "can't wait for changes of a shared folder");
                return;
            }
            let mut folders = self.folders();
            match read(watcher, &host.export, &mut folders) {
                Some(touched) => {
                    drop(folders);
                    for touched in touched {
                        // Held, so that the client doesn't move the folder meanwhile. In between, requests go on.
                        report(host, &self.folders(), touched);
                    }
                }
                None => {
                    // Too much happened at once. The tree is sent again, without contents.
                    for number in folders.below(b"") {
                        folders.remove(number);
                        watcher.forget(number);
                    }
                    drop(folders);
                    host.outbox.push(FsEvent::Reset.write(), FsUrgency::Reply);
                    push_tree(host, PushBudget { bytes: 0, file: 0 });
                }
            }
        }
    }
}

/// The names that something happened to. `None` if events were lost.
fn read(watcher: &FolderWatcher, export: &Export, folders: &mut WatchedFolders) -> Option<BTreeSet<ChangedEntry>> {
    let mut touched = BTreeSet::new();
    for event in watcher.read()? {
        let (number, name, is_folder, has_moved) = match event {
            FolderEvent::Touched { folder, name, is_folder, has_moved } => (folder, name, is_folder, has_moved),
            FolderEvent::Ended { folder } => {
                folders.remove(folder);
                continue;
            }
        };
        let Some(folder) = folders.0.get(&number).cloned() else { continue };
        let Some(name) = name else {
            if !folder.is_empty() {
                touched.insert(ChangedEntry { number, folder, name: None, is_folder: true, has_moved: false });
            }
            continue;
        };
        let has_moved = has_moved && drop_stale(watcher, export, folders, &join(&folder, &name));
        touched.insert(ChangedEntry { number, folder, name: Some(name), is_folder, has_moved });
    }
    Some(touched)
}

/// After a folder has lost its name: what is watched below it may be somewhere else, or nowhere, while another folder has the
/// name, maybe with the same inode number. Returns whether the client has to forget what it knows about it.
fn drop_stale(watcher: &FolderWatcher, export: &Export, folders: &mut WatchedFolders, path: &[u8]) -> bool {
    let (mut is_watched, mut has_stale) = (false, false);
    for number in folders.below(path) {
        let known = folders.0[&number].clone();
        // One that is watched already keeps its number.
        let current = export.watch_dir(&known, watcher).ok();
        if current == Some(number) {
            is_watched |= known == path;
            continue;
        }
        has_stale |= known != path;
        folders.remove(number);
        watcher.forget(number);
        if let Some(other) = current.filter(|current| !folders.0.contains_key(current)) {
            watcher.forget(other);
        }
    }
    !is_watched || has_stale
}

/// Sends what a name is now. A name that the lease doesn't show is never mentioned.
fn report(host: &FsHost, folders: &WatchedFolders, touched: ChangedEntry) {
    let ChangedEntry { number, folder, name, is_folder, has_moved } = touched;
    // With the earlier path, nothing would be found, and the change would go unreported.
    let folder = folders.0.get(&number).cloned().unwrap_or(folder);
    let path = name.map_or_else(|| folder.clone(), |name| join(&folder, &name));
    let folder = parent(&path).to_vec();
    let name = path[folder.len()..].strip_prefix(b"/").unwrap_or(&path[folder.len()..]).to_vec();
    let kind = if is_folder { FileKind::Folder } else { FileKind::File };
    if !host.export.shows(&path, kind) {
        return;
    }
    let stamp = host.stamp();
    let entry = match host.entry(&path) {
        Ok(entry) => Some(entry),
        Err(ExportRefusal::NotFound | ExportRefusal::NotADirectory) => None,
        Err(_) => return,
    };
    let Ok(own) = host.attributes(&folder) else { return };
    if has_moved {
        // Even if something has this name again: what was below it isn't there any more.
        let gone = FsTreeChange { stamp, folder: folder.clone(), own, name: name.clone(), entry: None };
        host.outbox.push(FsEvent::Changed(gone).write(), FsUrgency::Reply);
        if entry.is_none() {
            return;
        }
    }
    let stamp = if has_moved { host.stamp() } else { stamp };
    host.outbox.push(FsEvent::Changed(FsTreeChange { stamp, folder, own, name, entry }).write(), FsUrgency::Reply);
}

// === impl WatchedFolders ===

impl WatchedFolders {
    fn insert(&mut self, number: i32, path: Vec<u8>) {
        if self.0.insert(number, path).is_none() {
            WATCHED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove(&mut self, number: i32) {
        if self.0.remove(&number).is_some() {
            WATCHED.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A folder was moved by the client: what is watched below it has other paths now.
    pub(super) fn moved(&mut self, from: &[u8], to: &[u8]) {
        for path in self.0.values_mut() {
            if path == from {
                *path = to.to_vec();
            } else if path.strip_prefix(from).is_some_and(|rest| rest.starts_with(b"/")) {
                *path = [to, &path[from.len()..]].concat();
            }
        }
    }

    /// The numbers of a folder and everything below it.
    fn below(&self, path: &[u8]) -> Vec<i32> {
        let is_below = |other: &[u8]| {
            path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        self.0.iter().filter(|(_, path)| is_below(path)).map(|(number, _)| *number).collect()
    }
}

impl Drop for WatchedFolders {
    fn drop(&mut self) {
        WATCHED.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

// === impl CountedWatcher ===

impl CountedWatcher {
    fn take() -> Option<Self> {
        let is_free = WATCHERS.fetch_add(1, Ordering::Relaxed) < MAX_WATCHERS;
        match is_free.then(FolderWatcher::new) {
            Some(Ok(watcher)) => Some(Self(watcher)),
            failed => {
                WATCHERS.fetch_sub(1, Ordering::Relaxed);
                let error = failed.and_then(Result::err);
                tracing::warn!(?error, "a shared folder can't be watched; changes are noticed later");
                None
            }
        }
    }
}

impl Drop for CountedWatcher {
    fn drop(&mut self) {
        WATCHERS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use attache_protocol::wire::awcp::AccessMode;

    use super::*;
    use crate::{
        export::{ExportTerms, NoExportAudit, OriginalsFolder},
        fs_server::outbox::FsOutbox,
        fs_wire::FrameBuffer,
    };

    #[test]
    fn folders_below_a_moved_one_are_followed() {
        let paths = ["a", "a/b", "ab", "c/a", ""];
        let mut folders = WatchedFolders::default();
        for (number, path) in paths.iter().enumerate() {
            folders.insert(i32::try_from(number).unwrap(), path.as_bytes().to_vec());
        }
        folders.moved(b"a", b"c/x");
        let path = |number: i32| String::from_utf8(folders.0[&number].clone()).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(path), ["c/x", "c/x/b", "ab", "c/a", ""]);
        let mut below = folders.below(b"c/x");
        below.sort_unstable();
        assert_eq!(below, [0, 1]);
        assert_eq!(folders.below(b"").len(), 5);
    }

    /// The client may move a folder after it was read what has changed in it, and before that is reported.
    #[test]
    fn a_change_in_a_folder_that_was_moved_meanwhile_is_reported() {
        let all = tempfile::tempdir().unwrap();
        let lent = all.path().join("lent");
        fs::create_dir_all(lent.join("d")).unwrap();
        let before = OriginalsFolder::in_folder(all.path().join("before"));
        let export = Export::open(&lent, ExportTerms::new(AccessMode::Rw), before, Arc::new(NoExportAudit)).unwrap();
        let host = FsHost::new(Arc::new(export), FsOutbox::default());
        assert!(host.watcher.watch(&host.export, b"d").unwrap());
        fs::write(lent.join("d/x"), "12345").unwrap();
        let CountedWatcher(watcher) = host.watcher.watcher.as_ref().unwrap();
        let touched = read(watcher, &host.export, &mut host.watcher.folders()).unwrap();
        fs::rename(lent.join("d"), lent.join("e")).unwrap();
        host.watcher.folders().moved(b"d", b"e");
        for touched in touched {
            report(&host, &host.watcher.folders(), touched);
        }
        host.end();
        let mut frames = FrameBuffer::default();
        frames.extend(&host.outbox.next_batch().unwrap());
        let frame = frames.next().unwrap().unwrap().to_vec();
        let FsEvent::Changed(change) = FsEvent::read(&frame).unwrap() else { panic!("another event") };
        let size = change.entry.map(|entry| entry.attributes.size);
        assert_eq!((&change.folder[..], &change.name[..], size), (&b"e"[..], &b"x"[..], Some(5)));
    }
}
