//! Watches folders by looking at them again and again.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    os::fd::OwnedFd,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    fs::Dir,
    io::{Errno, fcntl_dupfd_cloexec},
};

use super::path_handle::{PathHandle, attributes_in, attributes_of};
use crate::{
    file_attributes::{FileAttributes, FileTime},
    folder_event::FolderEvent,
};

/// How often all watched folders are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct FolderWatcher {
    folders: Mutex<HashMap<i32, WatchedFolder>>,
    wakes: Mutex<bool>,
    woken: Condvar,
}

/// A folder as it was the last time.
#[derive(Debug)]
struct WatchedFolder {
    folder: OwnedFd,
    own: FileAttributes,
    entries: BTreeMap<Vec<u8>, FileAttributes>,
}

/// How many folders one watcher should watch. Each needs an open file, and is read twice a second.
pub const fn max_watched() -> usize {
    500
}

// === impl FolderWatcher ===

impl FolderWatcher {
    pub fn new() -> io::Result<Self> {
        Ok(Self::default())
    }

    /// Watches a folder, and returns its number. One that is watched already keeps its number.
    pub fn watch(&self, folder: &PathHandle) -> Result<i32, Errno> {
        let mut folders = self.folders();
        let own = (folder.attributes.device, folder.attributes.inode);
        if let Some((number, _)) = folders.iter().find(|(_, known)| (known.own.device, known.own.inode) == own) {
            return Ok(*number);
        }
        let number = (1..i32::MAX).find(|number| !folders.contains_key(number)).ok_or(Errno::NOSPC)?;
        folders.insert(number, WatchedFolder::read(fcntl_dupfd_cloexec(folder.open().ok_or(Errno::ACCESS)?, 0)?)?);
        Ok(number)
    }

    pub fn forget(&self, folder: i32) {
        self.folders().remove(&folder);
    }

    /// Ends a wait, now or later.
    pub fn wake(&self) {
        *self.wakes.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken.notify_all();
    }

    /// Waits until there may be something to read.
    pub fn wait(&self) -> io::Result<()> {
        let wakes = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.woken.wait_timeout_while(wakes, INTERVAL, |wakes| !*wakes);
        Ok(())
    }

    /// What happened since the last time. `None` if events were lost.
    pub fn read(&self) -> Option<Vec<FolderEvent>> {
        let (mut folders, mut events) = (self.folders(), Vec::new());
        folders.retain(|number, before| {
            let now = before.folder.try_clone().map_err(|_| Errno::IO).and_then(WatchedFolder::read);
            let Ok(now) = now.ok().filter(|now| now.own.links > 0).ok_or(()) else {
                events.push(FolderEvent::Ended { folder: *number });
                return false;
            };
            before.compare(&now, |name, is_folder, has_moved| {
                events.push(FolderEvent::Touched { folder: *number, name, is_folder, has_moved });
            });
            *before = now;
            true
        });
        Some(events)
    }

    fn folders(&self) -> MutexGuard<'_, HashMap<i32, WatchedFolder>> {
        self.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WatchedFolder ===

impl WatchedFolder {
    fn read(folder: OwnedFd) -> Result<Self, Errno> {
        let own = attributes_of(&folder)?;
        let mut entries = BTreeMap::new();
        // With a descriptor of its own, which begins at the first entry.
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match attributes_in(&folder, name) {
                Err(Errno::NOENT) => {}
                found => {
                    entries
                        .insert(name.to_bytes().to_vec(), FileAttributes { accessed: FileTime::default(), ..found? });
                }
            }
        }
        Ok(Self { folder, own: FileAttributes { accessed: FileTime::default(), ..own }, entries })
    }

    /// Reports what differs: the name, whether it is a folder, and whether a folder isn't there any more.
    fn compare(&self, now: &Self, mut report: impl FnMut(Option<Vec<u8>>, bool, bool)) {
        for (name, was) in &self.entries {
            match now.entries.get(name) {
                Some(is) if is == was => {}
                Some(is) => {
                    let is_other = (is.inode, is.kind) != (was.inode, was.kind);
                    report(Some(name.clone()), is.is_folder(), was.is_folder() && is_other);
                }
                None => report(Some(name.clone()), was.is_folder(), was.is_folder()),
            }
        }
        for (name, is) in now.entries.iter().filter(|(name, _)| !self.entries.contains_key(*name)) {
            report(Some(name.clone()), is.is_folder(), false);
        }
        if self.own != now.own {
            report(None, true, false);
        }
    }
}
