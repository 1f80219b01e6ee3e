//! Watches folders with inotify.

use std::{io, mem::MaybeUninit, os::fd::OwnedFd};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::Errno,
};

use super::path_handle::PathHandle;
use crate::folder_event::FolderEvent;

/// What is reported about a watched folder: its own attributes, and its entries.
const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

#[derive(Debug)]
pub struct FolderWatcher {
    inotify: OwnedFd,
    wake: OwnedFd,
}

/// How many folders one watcher should watch. Watches are shared by all programs of a user, so at most half of them.
pub fn max_watched() -> usize {
    const MOST: usize = 100_000;
    let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok();
    limit.and_then(|text| text.trim().parse::<usize>().ok()).map_or(MOST, |limit| (limit / 2).min(MOST))
}

// === impl FolderWatcher ===

impl FolderWatcher {
    pub fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { inotify, wake })
    }

    /// Watches a folder, and returns its number. One that is watched already keeps its number.
    pub fn watch(&self, folder: &PathHandle) -> Result<i32, Errno> {
        // Through the handle, so that nothing else can be watched.
        inotify::add_watch(&self.inotify, folder.proc_path(), WATCHED)
    }

    pub fn forget(&self, folder: i32) {
        let _ = inotify::remove_watch(&self.inotify, folder);
    }

    /// Ends a wait, now or later.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Waits until there may be something to read.
    pub fn wait(&self) -> io::Result<()> {
        let mut ready = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        match poll(&mut ready, None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What happened since the last time. `None` if events were lost.
    pub fn read(&self) -> Option<Vec<FolderEvent>> {
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
        let mut events = Vec::new();
        // Reading ends when no event is left, or at an error that the next round meets again.
        while let Ok(event) = reader.next() {
            let (what, folder) = (event.events(), event.wd());
            if what.contains(ReadFlags::QUEUE_OVERFLOW) {
                return None;
            }
            if what.contains(ReadFlags::IGNORED) {
                events.push(FolderEvent::Ended { folder });
                continue;
            }
            let is_folder = what.contains(ReadFlags::ISDIR);
            let name = event.file_name().map(|name| name.to_bytes().to_vec());
            let has_moved = is_folder && what.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE);
            events.push(FolderEvent::Touched { folder, name, is_folder, has_moved });
        }
        Some(events)
    }
}
