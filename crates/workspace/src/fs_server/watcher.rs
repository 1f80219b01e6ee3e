//! Reports what changes on the host. Folders that were sent are watched; an event only says where to look,
//! and what is there now is sent.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    sync::{Mutex, MutexGuard, PoisonError},
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
    watcher: FolderWatcher,
    /// Locked while events are interpreted and while a folder is moved.
    folders: Mutex<WatchedFolders>,
    max_watched: usize,
}

/// The watched folders, by number.
#[derive(Debug, Default)]
pub(super) struct WatchedFolders(HashMap<i32, Vec<u8>>);

/// A name that something happened to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Touched {
    folder: Vec<u8>,
    name: Vec<u8>,
    is_folder: bool,
    has_moved: bool,
}

// === impl FsWatcher ===

impl FsWatcher {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { watcher: FolderWatcher::new()?, folders: Mutex::default(), max_watched: max_watched() })
    }

    /// Whether changes in a folder will be reported from now on. If the machine's limit of watches is reached, they
    /// won't.
    pub(super) fn watch(&self, export: &Export, path: &[u8]) -> Result<bool, ExportRefusal> {
        let mut folders = self.folders();
        if folders.0.len() >= self.max_watched && !folders.0.values().any(|known| known == path) {
            return Ok(false);
        }
        match export.watch_dir(path, &self.watcher) {
            Ok(number) => {
                folders.0.insert(number, path.to_vec());
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
        self.watcher.wake();
    }

    /// Reports changes until the channel ends.
    pub(super) fn run(&self, host: &FsHost) {
        while !host.has_ended() {
            if let Err(error) = self.watcher.wait() {
                tracing::warn!(%error, "can't wait for changes of a shared folder");
                return;
            }
            let mut folders = self.folders();
            match self.read(&mut folders) {
                Some(touched) => {
                    drop(folders);
                    for touched in touched {
                        report(host, &touched);
                    }
                }
                None => {
                    // Too much happened at once. The tree is sent again, without contents.
                    for (number, _) in folders.0.drain() {
                        self.watcher.forget(number);
                    }
                    drop(folders);
                    host.outbox.push(FsEvent::Reset.write(), FsUrgency::Reply);
                    push_tree(host, PushBudget { bytes: 0, file: 0 });
                }
            }
        }
    }

    /// The names that something happened to. `None` if events were lost.
    fn read(&self, folders: &mut WatchedFolders) -> Option<BTreeSet<Touched>> {
        let mut touched = BTreeSet::new();
        for event in self.watcher.read()? {
            let (number, name, is_folder, has_moved) = match event {
                FolderEvent::Touched { folder, name, is_folder, has_moved } => (folder, name, is_folder, has_moved),
                FolderEvent::Ended { folder } => {
                    folders.0.remove(&folder);
                    continue;
                }
            };
            let Some(folder) = folders.0.get(&number).cloned() else { continue };
            let Some(name) = name else {
                // The folder itself.
                if !folder.is_empty() {
                    let above = parent(&folder).to_vec();
                    let name = folder[above.len()..].strip_prefix(b"/").unwrap_or(&folder[above.len()..]).to_vec();
                    touched.insert(Touched { folder: above, name, is_folder: true, has_moved: false });
                }
                continue;
            };
            if has_moved {
                // What is watched below it is somewhere else now. The client forgets it as well.
                for number in folders.below(&join(&folder, &name)) {
                    folders.0.remove(&number);
                    self.watcher.forget(number);
                }
            }
            touched.insert(Touched { folder, name, is_folder, has_moved });
        }
        Some(touched)
    }
}

/// Sends what a name is now. A name that the lease doesn't show is never mentioned.
fn report(host: &FsHost, touched: &Touched) {
    let path = join(&touched.folder, &touched.name);
    let kind = if touched.is_folder { FileKind::Folder } else { FileKind::File };
    if !host.export.shows(&path, kind) {
        return;
    }
    let stamp = host.stamp();
    let entry = match host.entry(&path) {
        Ok(entry) => Some(entry),
        Err(ExportRefusal::NotFound | ExportRefusal::NotADirectory) => None,
        Err(_) => return,
    };
    let Ok(own) = host.attributes(&touched.folder) else { return };
    let (folder, name) = (touched.folder.clone(), touched.name.clone());
    if touched.has_moved {
        // Even if something has this name again: what was below it isn't there any more.
        let gone = FsTreeChange { stamp, folder: folder.clone(), own, name: name.clone(), entry: None };
        host.outbox.push(FsEvent::Changed(gone).write(), FsUrgency::Reply);
        if entry.is_none() {
            return;
        }
    }
    let stamp = if touched.has_moved { host.stamp() } else { stamp };
    host.outbox.push(FsEvent::Changed(FsTreeChange { stamp, folder, own, name, entry }).write(), FsUrgency::Reply);
}

// === impl WatchedFolders ===

impl WatchedFolders {
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
        let is_below =
            |other: &[u8]| other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
        self.0.iter().filter(|(_, path)| is_below(path)).map(|(number, _)| *number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_below_a_moved_one_are_followed() {
        let paths = ["a", "a/b", "ab", "c/a", ""];
        let mut folders = WatchedFolders::default();
        for (number, path) in paths.iter().enumerate() {
            folders.0.insert(i32::try_from(number).unwrap(), path.as_bytes().to_vec());
        }
        folders.moved(b"a", b"c/x");
        let path = |number: i32| String::from_utf8(folders.0[&number].clone()).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(path), ["c/x", "c/x/b", "ab", "c/a", ""]);
        let mut below = folders.below(b"c/x");
        below.sort_unstable();
        assert_eq!(below, [0, 1]);
    }
}
