//! What FUSE requests and the host's events share: the tree, open files, and the link.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant, SystemTime},
};

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyWrite};

use super::{
    link::{Link, LinkUser, Then},
    tree::{Invalidation, Lookup, Node, Origin, ROOT, Tree, UNWATCHED},
};
use crate::{
    export::{FileKind, FileTime},
    fs_wire::{FsAttributes, FsEvent, FsListing, FsOpenFlags, FsReply, FsRequest},
};

pub(super) struct FsShared {
    state: Mutex<FsState>,
    /// Set when the shared folder itself is known.
    is_ready: Condvar,
    pub(super) link: Link,
    kernel: mpsc::Sender<Invalidation>,
    owner: (u32, u32),
}

pub(super) struct FsState {
    pub(super) tree: Tree,
    pub(super) files: HashMap<u64, OpenFile>,
    pub(super) folders: HashMap<u64, Vec<(Vec<u8>, u64)>>,
    next_handle: u64,
    /// Reads that wait for the content of a file.
    pub(super) fetches: HashMap<u64, Vec<PendingRead>>,
    /// Requests that wait for a folder to be listed.
    listings: HashMap<u64, Vec<ListingWaiter>>,
}

pub(super) struct PendingRead {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) size: u32,
    pub(super) reply: fuser::ReplyData,
}

type ListingWaiter = Box<dyn FnOnce(&FsShared, Result<(), Errno>) + Send>;

/// A file that a program has open.
pub(super) struct OpenFile {
    pub(super) ino: u64,
    pub(super) flags: FsOpenFlags,
    /// Open at the host too. A file that is only read needs that only if its content isn't here.
    pub(super) is_at_host: bool,
    /// Bytes that the host hasn't confirmed.
    pub(super) unconfirmed: usize,
    /// Why an earlier write, or opening it at the host, failed.
    pub(super) failure: Option<Errno>,
    /// Writes that the program waits for, because too many are under way.
    pub(super) waiting: VecDeque<(ReplyWrite, u32)>,
    /// Programs that wait until everything is confirmed.
    pub(super) flushes: Vec<ReplyEmpty>,
}

/// How long the kernel may keep what the host watches. The host says when it changes.
const KEPT: Duration = Duration::from_secs(3600);
/// How much of one file can be under way before its writer has to wait.
pub(super) const WRITE_WINDOW: usize = 8 << 20;
/// How much content of small files is kept in memory.
const CONTENT_BUDGET: usize = 256 << 20;

// === impl FsShared ===

impl FsShared {
    pub(super) fn new(kernel: mpsc::Sender<Invalidation>) -> Self {
        let state = FsState {
            tree: Tree::new(CONTENT_BUDGET),
            files: HashMap::new(),
            folders: HashMap::new(),
            next_handle: 1,
            fetches: HashMap::new(),
            listings: HashMap::new(),
        };
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { state: Mutex::new(state), is_ready: Condvar::new(), link: Link::new(), kernel, owner }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the shared folder can be shown.
    pub(super) fn wait_until_ready(&self, time: Duration) -> bool {
        let is_unknown = |state: &mut FsState| state.tree.node(ROOT).is_none();
        let (state, _) =
            self.is_ready.wait_timeout_while(self.lock(), time, is_unknown).unwrap_or_else(PoisonError::into_inner);
        state.tree.node(ROOT).is_some()
    }

    /// Sends a request in the order in which the state was looked at, and lets go of the state.
    pub(super) fn ask(&self, state: MutexGuard<'_, FsState>, make: impl FnOnce(u32) -> Vec<u8>, then: Then) {
        let sent = self.link.call(make, then);
        drop(state);
        if let Err(then) = sent {
            then(Err(Errno::EIO));
        }
    }

    /// The kernel is told by another thread: it may hold a lock until one of our answers arrives.
    pub(super) fn invalidate(&self, out: Vec<Invalidation>) {
        for invalidation in out {
            let _ = self.kernel.send(invalidation);
        }
    }

    pub(super) fn attr(&self, attributes: &FsAttributes) -> FileAttr {
        let time = |FileTime { seconds, nanos }: FileTime| {
            let whole = Duration::from_secs(seconds.unsigned_abs());
            let base = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
            base + Duration::from_nanos(nanos.into())
        };
        FileAttr {
            ino: INodeNo(attributes.inode),
            size: attributes.size,
            blocks: attributes.size.div_ceil(512),
            atime: time(attributes.accessed),
            mtime: time(attributes.modified),
            ctime: time(attributes.changed),
            crtime: SystemTime::UNIX_EPOCH,
            kind: match attributes.kind {
                FileKind::File => FileType::RegularFile,
                FileKind::Folder => FileType::Directory,
                FileKind::Link => FileType::Symlink,
                FileKind::Special => FileType::CharDevice,
            },
            perm: u16::try_from(attributes.mode & 0o7777).unwrap_or(0),
            nlink: attributes.links,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    pub(super) fn attr_of(&self, ino: u64, node: &Node) -> FileAttr {
        FileAttr { ino: INodeNo(ino), ..self.attr(&node.attributes) }
    }

    /// Answers with an entry, which the kernel then refers to.
    pub(super) fn reply_entry(&self, state: &mut FsState, ino: u64, reply: ReplyEntry) {
        let (entry_ttl, attr_ttl) = state.ttls(ino);
        match state.tree.node_mut(ino) {
            Some(node) => {
                node.lookups += 1;
                let attr = FileAttr { ino: INodeNo(ino), ..self.attr(&node.attributes) };
                reply.entry_with_ttls(&attr_ttl, &entry_ttl, &attr, Generation(node.generation));
            }
            None => reply.error(Errno::EIO),
        }
    }

    /// Answers that a name is free, which the kernel may remember as long as the folder is watched.
    pub(super) fn reply_free(&self, state: &mut FsState, folder: u64, reply: ReplyEntry) {
        let Some(own) = state.tree.node(folder).map(|node| node.attributes) else {
            return reply.error(Errno::ENOENT);
        };
        if !state.tree.note_free(folder) {
            return reply.error(Errno::ENOENT);
        }
        let attr = FileAttr { ino: INodeNo(0), ..self.attr(&own) };
        reply.entry_with_ttls(&Duration::ZERO, &KEPT, &attr, Generation(0));
    }

    pub(super) fn reply_attr(&self, state: &FsState, ino: u64, reply: ReplyAttr) {
        match state.tree.node(ino) {
            Some(node) => reply.attr(&state.ttls(ino).1, &self.attr_of(ino, node)),
            None => reply.error(Errno::ESTALE),
        }
    }

    /// Calls back once a folder is listed.
    pub(super) fn list(&self, mut state: MutexGuard<'_, FsState>, this: &Arc<Self>, ino: u64, then: ListingWaiter) {
        let Some(path) = state.tree.path(ino) else {
            drop(state);
            return then(self, Err(Errno::ENOENT));
        };
        let waiters = state.listings.entry(ino).or_default();
        waiters.push(then);
        if waiters.len() > 1 {
            return;
        }
        let this = Arc::clone(this);
        self.ask(
            state,
            |id| FsRequest::List { id, path: &path }.write(),
            Box::new(move |done| {
                let waiters = this.lock().listings.remove(&ino).unwrap_or_default();
                for then in waiters {
                    then(&this, done.as_ref().map(|_| ()).map_err(|errno| *errno));
                }
            }),
        );
    }

    /// Takes in what the host says about a file after a request of ours.
    pub(super) fn learn(&self, ino: u64, reply: &FsReply, state: &mut FsState) {
        let Some(entry) = &reply.entry else { return };
        let mut out = Vec::new();
        state.tree.apply_attributes(ino, reply.stamp, entry.attributes, Origin::Own, &mut out);
        state.tree.revalidate(ino, Instant::now());
        self.invalidate(out);
    }

    /// A write was confirmed or failed.
    pub(super) fn confirm_write(
        &self,
        (handle, ino): (u64, u64),
        (start, length): (u64, usize),
        done: Result<FsReply, Errno>,
    ) {
        let mut state = self.lock();
        let is_append = state.files.get(&handle).is_some_and(|file| file.flags.append);
        if let Some(node) = state.tree.node_mut(ino) {
            node.pending_writes = node.pending_writes.saturating_sub(1);
        }
        match &done {
            Ok(reply) => {
                // Somebody else appended as well: what the kernel has is in the wrong place.
                let size = reply.entry.as_ref().map(|entry| entry.attributes.size);
                if is_append && size != Some(start + length as u64) {
                    self.invalidate(vec![Invalidation::Content(ino)]);
                }
                self.learn(ino, reply, &mut state);
            }
            Err(_) => {
                // What the kernel has was never written.
                state.tree.doubt(ino);
                state.tree.drop_content(ino);
                self.invalidate(vec![Invalidation::Content(ino)]);
            }
        }
        let Some(file) = state.files.get_mut(&handle) else { return };
        file.unconfirmed = file.unconfirmed.saturating_sub(length);
        if let Err(errno) = done {
            file.failure = Some(errno);
        }
        while file.unconfirmed <= WRITE_WINDOW
            && let Some((reply, length)) = file.waiting.pop_front()
        {
            match file.failure {
                Some(errno) => reply.error(errno),
                None => reply.written(length),
            }
        }
        if file.unconfirmed == 0 {
            let flushes = std::mem::take(&mut file.flushes);
            let failure = if flushes.is_empty() { None } else { file.failure.take() };
            for reply in flushes {
                match failure {
                    Some(errno) => reply.error(errno),
                    None => reply.ok(),
                }
            }
        }
    }

    /// Before a file loses its name: whoever only read it here so far needs it open at the host from now on.
    pub(super) fn open_before_removal(self: &Arc<Self>, state: &mut FsState, ino: u64) {
        let Some(path) = state.tree.path(ino) else { return };
        let handles: Vec<u64> = state
            .files
            .iter()
            .filter(|(_, file)| file.ino == ino && !file.is_at_host)
            .map(|(handle, _)| *handle)
            .collect();
        for handle in handles {
            self.open_at_host(state, handle, &path);
        }
    }

    /// Opens a file at the host that is open here. Requests that follow can use it at once.
    pub(super) fn open_at_host(self: &Arc<Self>, state: &mut FsState, handle: u64, path: &[u8]) {
        let Some(file) = state.files.get_mut(&handle) else { return };
        file.is_at_host = true;
        let (this, flags) = (Arc::clone(self), file.flags);
        let sent = self.link.call(
            |id| FsRequest::Open { id, handle, path, flags, mode: 0 }.write(),
            Box::new(move |done| {
                let mut state = this.lock();
                if let (Err(errno), Some(file)) = (done, state.files.get_mut(&handle)) {
                    (file.is_at_host, file.failure) = (false, Some(errno));
                }
            }),
        );
        if sent.is_err()
            && let Some(file) = state.files.get_mut(&handle)
        {
            file.is_at_host = false;
        }
    }
}

impl LinkUser for Arc<FsShared> {
    fn on_connected(&self) -> Vec<Vec<u8>> {
        let mut state = self.lock();
        let is_again = state.tree.node(ROOT).is_some();
        state.tree.doubt_all();
        if !is_again {
            return Vec::new();
        }
        let mut frames = Vec::new();
        let handles: Vec<u64> = state.files.keys().copied().collect();
        for handle in handles {
            let path = state.files.get(&handle).and_then(|file| state.tree.path(file.ino));
            let Some(file) = state.files.get_mut(&handle).filter(|file| file.is_at_host) else { continue };
            match path {
                Some(path) => {
                    let resumed = file.failure.is_none();
                    let flags = FsOpenFlags { create: false, exclusive: false, truncate: false, resumed, ..file.flags };
                    // Zero is nobody's id: a failure shows when the file is used.
                    frames.push(FsRequest::Open { id: 0, handle, path: &path, flags, mode: 0 }.write());
                }
                // It was removed, and exists nowhere any more.
                None => (file.is_at_host, file.failure) = (false, Some(Errno::EIO)),
            }
        }
        frames
    }

    fn on_event(&self, event: FsEvent) {
        match event {
            FsEvent::Content { path, attributes, data, .. } => {
                // The host counts the whole frame.
                const HEADER: usize = 82;
                self.link.tell(&FsRequest::Received { bytes: (data.len() + path.len() + HEADER) as u64 });
                self.lock().tree.keep_pushed(&path, &attributes, data.into());
            }
            FsEvent::Changed(change) => {
                let mut state = self.lock();
                let out = state.tree.apply_change(&change, Instant::now());
                self.invalidate(out);
            }
            FsEvent::Reset => self.lock().tree.doubt_all(),
            FsEvent::TreeComplete => {
                let out = self.lock().tree.still_doubted();
                self.invalidate(out);
            }
            // Handled by the link, or without a meaning once connected.
            FsEvent::Welcome { .. } | FsEvent::Listing(_) | FsEvent::Done(_) | FsEvent::Failed(_) => {}
        }
    }

    fn on_listing(&self, listing: &FsListing) {
        let mut state = self.lock();
        let out = state.tree.apply_listing(listing, Instant::now());
        self.invalidate(out);
        drop(state);
        self.is_ready.notify_all();
    }

    fn on_disconnected(&self) {
        let out = self.lock().tree.known_files();
        self.invalidate(out);
    }

    fn on_lost(&self) {
        let out = self.lock().tree.all_known();
        self.invalidate(out);
    }
}

// === impl FsState ===

impl FsState {
    pub(super) const fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// How long the kernel may keep a name, and its attributes.
    pub(super) fn ttls(&self, ino: u64) -> (Duration, Duration) {
        let kept = if self.tree.is_watched(ino) { KEPT } else { UNWATCHED };
        let is_changing = self.tree.node(ino).is_none_or(|node| node.pending_writes > 0);
        (kept, if is_changing { Duration::ZERO } else { kept })
    }

    /// What a name is, if that is known. Whether it may be shown depends on the link.
    pub(super) fn look_up(&self, folder: u64, name: &[u8]) -> Lookup {
        self.tree.look_up(folder, name, Instant::now())
    }
}

// === impl OpenFile ===

impl OpenFile {
    pub(super) const fn new(ino: u64, flags: FsOpenFlags) -> Self {
        Self {
            ino,
            flags,
            is_at_host: false,
            unconfirmed: 0,
            failure: None,
            waiting: VecDeque::new(),
            flushes: Vec::new(),
        }
    }
}
