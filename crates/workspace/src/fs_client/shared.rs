//! What FUSE requests and the host's events share: the tree, open files, and the link.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant, SystemTime},
};

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry};

use super::{
    folder_reads::FolderReads,
    journal::Journal,
    link::{EarlierFileHandles, Link, LinkUser, OnDisconnect, Then},
    locks::LockTable,
    tree::{HostClock, Invalidation, Lookup, Node, ROOT, Tree, UNWATCHED},
};
use crate::{
    export::{ExportFilter, ExportPatterns, FileKind, FileTime},
    fs_wire::{FsAttributes, FsEvent, FsListing, FsOpenFlags, FsReply, FsRequest},
    sftp::MAX_HANDLES,
};

pub(super) struct FsShared {
    state: Mutex<FsState>,
    /// Set when the shared folder itself is known.
    is_ready: Condvar,
    pub(super) link: Link,
    kernel: mpsc::Sender<KernelNotice>,
    /// How many names the kernel has still to forget.
    untold_names: AtomicUsize,
    owner: (u32, u32),
    /// What every lease withholds. Whether such a name can be used is the host's decision.
    pub(super) shown: Option<ExportFilter>,
    pub(super) has_locks: bool,
    /// Whether the kernel asks before it opens a folder.
    pub(super) opens_folders: AtomicBool,
}

/// How a mount behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct FsOptions {
    /// Whether changes are acknowledged before the host has them.
    pub(super) is_write_back: bool,
    /// Whether programs lock files at the host. Otherwise, only among themselves.
    pub(super) has_locks: bool,
}

/// For the thread that tells the kernel.
pub(super) enum KernelNotice {
    Forget(Invalidation),
    /// To be done when everything before it is forgotten.
    Then(Box<dyn FnOnce() + Send>),
}

pub(super) struct FsState {
    pub(super) tree: Tree,
    pub(super) files: HashMap<u64, OpenFile>,
    pub(super) folder_reads: FolderReads,
    /// When the kernel has to forget what is in folders that the host doesn't watch.
    pub(super) unwatched: HashMap<u64, Instant>,
    next_handle: u64,
    /// Reads that wait for the content of a file.
    pub(super) fetches: HashMap<u64, Vec<PendingRead>>,
    /// Requests that wait for a folder to be listed.
    listings: HashMap<u64, Vec<ListingWaiter>>,
    /// Whether changes are acknowledged before the host has them.
    pub(super) is_write_back: bool,
    /// The size of what was acknowledged and is not confirmed, and acknowledgements that wait until it is less.
    pub(super) unconfirmed: usize,
    pub(super) waiting: VecDeque<Acknowledgement>,
    /// What was acknowledged and never reached the host, and the first error that wasn't reported to any program.
    pub(super) lost: BTreeMap<Vec<u8>, Errno>,
    pub(super) untold: Option<Errno>,
    pub(super) locks: LockTable,
}

/// Tells a program that something is done, or why not.
pub(super) type Acknowledgement = Box<dyn FnOnce(Result<(), Errno>) + Send>;

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
    /// The host opened what had its path by then, and that was another file.
    pub(super) is_other: bool,
    /// Bytes that the host hasn't confirmed.
    pub(super) unconfirmed: usize,
    /// Why an earlier write, or opening it at the host, failed.
    pub(super) failure: Option<Errno>,
    /// Programs that wait until everything is confirmed.
    pub(super) flushes: Vec<ReplyEmpty>,
}

/// How long the kernel may keep what the host watches. The host says when it changes.
const KEPT: Duration = Duration::from_secs(3600);
/// How much content of small files is kept in memory.
const CONTENT_BUDGET: usize = 256 << 20;
/// How much is kept in memory about files and folders: about a million of them.
const MAX_TREE_BYTES: usize = 512 << 20;
/// How many files programs can have open, and how many of them at the host, which has the same limit.
const MAX_OPEN: usize = 64 << 10;
const MAX_OPEN_AT_HOST: usize = MAX_HANDLES;

/// Ends a request with an I/O error if the host can't be asked any more.
macro_rules! or_lost {
    ($self:ident, $reply:ident) => {
        if $self.0.link.is_lost() {
            return $reply.error(Errno::EIO);
        }
    };
}

pub(super) use or_lost;

// === impl FsShared ===

impl FsShared {
    pub(super) fn new(kernel: mpsc::Sender<KernelNotice>, options: FsOptions, journal: Option<Journal>) -> Self {
        let FsOptions { is_write_back, has_locks } = options;
        let state = FsState {
            tree: Tree::new(CONTENT_BUDGET, MAX_TREE_BYTES),
            files: HashMap::new(),
            folder_reads: FolderReads::default(),
            unwatched: HashMap::new(),
            next_handle: 1,
            fetches: HashMap::new(),
            listings: HashMap::new(),
            is_write_back,
            unconfirmed: 0,
            waiting: VecDeque::new(),
            lost: BTreeMap::new(),
            untold: None,
            locks: LockTable::default(),
        };
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let shown = ExportFilter::new(&ExportPatterns::default()).ok();
        Self {
            state: Mutex::new(state),
            is_ready: Condvar::new(),
            link: Link::new(journal),
            kernel,
            untold_names: AtomicUsize::new(0),
            owner,
            shown,
            has_locks,
            opens_folders: AtomicBool::new(true),
        }
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
        let sent = self.link.call(OnDisconnect::Fail, make, then);
        drop(state);
        if let Err(then) = sent {
            then(Err(Errno::EIO));
        }
    }

    /// The kernel is told by another thread: it may hold a lock until one of our answers arrives.
    pub(super) fn invalidate(&self, out: Vec<Invalidation>) {
        for invalidation in out {
            if matches!(invalidation, Invalidation::Entry { .. }) {
                self.untold_names.fetch_add(1, Ordering::AcqRel);
            }
            let _ = self.kernel.send(KernelNotice::Forget(invalidation));
        }
    }

    /// The kernel has forgotten a name.
    pub(super) fn note_told_name(&self) {
        self.untold_names.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether the kernel still has names that are known to be those of something else by now.
    pub(super) fn has_untold_names(&self) -> bool {
        self.untold_names.load(Ordering::Acquire) > 0
    }

    /// Runs once the kernel has forgotten what it was told to forget before.
    pub(super) fn after_invalidations(&self, then: Box<dyn FnOnce() + Send>) {
        // Without the thread, nothing is mounted any more.
        let _ = self.kernel.send(KernelNotice::Then(then));
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

    /// With the kernel's number, which is another than the host's for what was created here.
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
            Some(node) if node.attributes.inode == 0 => reply.attr(&Duration::ZERO, &self.attr_of(ino, node)),
            Some(node) => reply.attr(&state.attr_ttl(ino), &self.attr(&node.attributes)),
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

    /// What the kernel remembers of unwatched folders doesn't hold any more.
    pub(super) fn forget_unwatched(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        let due = state.unwatched.extract_if(|_, until| *until <= now);
        let out = due.map(|(ino, _)| Invalidation::Content(ino)).collect();
        drop(state);
        self.invalidate(out);
    }

    /// Takes in what the host says about a file after a request of ours. `false` if that is another file, which has its
    /// path now.
    pub(super) fn learn(&self, ino: u64, reply: &FsReply, state: &mut FsState) -> bool {
        let Some(entry) = &reply.entry else { return true };
        let mut out = Vec::new();
        let is_same = state.tree.apply_answer(ino, reply.stamp, entry.attributes, Instant::now(), &mut out);
        self.invalidate(out);
        is_same
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
            OnDisconnect::Resend { path },
            |id| FsRequest::Open { id, handle, path, flags, mode: 0 }.write(),
            Box::new(move |done| {
                let mut state = this.lock();
                match done {
                    Ok(answer) => state.note_opened(handle, &answer),
                    Err(errno) => {
                        if let Some(file) = state.files.get_mut(&handle) {
                            (file.is_at_host, file.failure) = (false, Some(errno));
                        }
                    }
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
    fn on_connected(&self, handles: EarlierFileHandles) {
        let mut state = self.lock();
        state.tree.doubt_all(HostClock::New);
        if handles == EarlierFileHandles::Open {
            return;
        }
        for file in state.files.values_mut().filter(|file| file.is_at_host) {
            // What is only read is opened again when it is needed.
            file.is_at_host = false;
            if file.flags.write {
                file.failure = Some(Errno::EIO);
            }
        }
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
            FsEvent::Reset => self.lock().tree.doubt_all(HostClock::Continued),
            FsEvent::TreeComplete => {
                let state = self.lock();
                let (out, folders) = (state.tree.still_doubted(), state.tree.doubted_with_free_names());
                drop(state);
                self.invalidate(out);
                for folder in folders {
                    self.list(self.lock(), self, folder, Box::new(|_, _| {}));
                }
            }
            // Handled by the link, or without a meaning once connected.
            FsEvent::Ended | FsEvent::Welcome(_) | FsEvent::Listing(_) | FsEvent::Done(_) | FsEvent::Failed(_) => {}
        }
    }

    fn on_listing(&self, listing: &FsListing) -> Result<(), Errno> {
        let mut state = self.lock();
        let done = state.tree.apply_listing(listing, Instant::now());
        if let Ok(out) = done {
            self.invalidate(out);
            drop(state);
            self.is_ready.notify_all();
            return Ok(());
        }
        drop(state);
        tracing::warn!(MAX_TREE_BYTES, "the shared folder has more files than are kept in memory");
        Err(Errno::ENOMEM)
    }

    fn on_disconnected(&self) {
        let out = self.lock().tree.known_files();
        self.invalidate(out);
    }

    fn on_lost(&self) {
        let mut state = self.lock();
        let out = state.tree.all_known();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.invalidate(out);
        for acknowledge in waiting {
            acknowledge(Err(Errno::EIO));
        }
    }
}

// === impl FsState ===

impl FsState {
    pub(super) const fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Whether one more file can be open: here, or at the host as well.
    pub(super) fn has_room(&self, at_host: bool) -> bool {
        self.files.len() < MAX_OPEN
            && (!at_host || self.files.values().filter(|file| file.is_at_host).count() < MAX_OPEN_AT_HOST)
    }

    /// The host has opened a file by its path, and says which it is.
    pub(super) fn note_opened(&mut self, handle: u64, answer: &FsReply) {
        let (Some(file), Some(entry)) = (self.files.get_mut(&handle), &answer.entry) else { return };
        // One that was created here has no number of the host's before it is recognised.
        let is_known = self.tree.node(file.ino).is_some_and(|node| node.attributes.inode != 0);
        file.is_other = is_known && self.tree.number(entry.attributes.inode) != file.ino;
    }

    /// How long the kernel may keep a name, and the attributes that came with it.
    pub(super) fn ttls(&self, ino: u64) -> (Duration, Duration) {
        let kept = if self.tree.is_watched(ino) { KEPT } else { UNWATCHED };
        // The number in them is not the host's.
        let is_created_here = self.tree.node(ino).is_some_and(|node| node.attributes.inode != ino && ino != ROOT);
        (kept, if is_created_here { Duration::ZERO } else { self.attr_ttl(ino) })
    }

    /// How long the kernel may keep attributes.
    pub(super) fn attr_ttl(&self, ino: u64) -> Duration {
        match self.tree.node(ino) {
            Some(node) if !node.is_pending() => {
                if self.tree.is_watched(ino) {
                    KEPT
                } else {
                    UNWATCHED
                }
            }
            _ => Duration::ZERO,
        }
    }

    /// What a name is, if that is known. Whether it may be shown depends on the link.
    pub(super) fn look_up(&self, folder: u64, name: &[u8]) -> Lookup {
        self.tree.look_up(folder, name, Instant::now())
    }
}

// === impl OpenFile ===

impl OpenFile {
    pub(super) const fn new(ino: u64, flags: FsOpenFlags) -> Self {
        Self { ino, flags, is_at_host: false, is_other: false, unconfirmed: 0, failure: None, flushes: Vec::new() }
    }
}
