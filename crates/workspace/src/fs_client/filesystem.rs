//! FUSE requests. What the tree knows is answered at once; the rest is one request to the host each, and the answer is
//! given when its reply arrives. No thread waits for the host.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime},
};

use fuser::{
    BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLock, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use nix::libc;

use super::{
    convert::{file_time, open_flags, part, unknown_handle, unknown_handle_of},
    folder_reads::FolderReply,
    locks::{LockWaiter, lock_kind},
    names::MAX_NAME,
    shared::{FsShared, FsState, OpenFile, PendingRead, or_lost},
    tree::{Invalidation, Lookup, Node, ROOT},
    write_back::{ChangeKind, LocalChange, LocalEntry, Outcome, answer_empty},
};
use crate::{
    export::{AttributeChange, FileKind, LockRange, SizeAfter},
    fs_wire::{FsOpenFlags, FsReply, FsRequest, MAX_DATA, WantedLock},
};

pub(super) struct MountedFs(pub(super) Arc<FsShared>);

/// Files up to this size are fetched whole when a part of them is read.
const FETCH_WHOLE: u64 = 256 << 10;
const MAX_BACKGROUND: u16 = 64;
/// Whoever checks whether the host still answers looks up such a name at the top, and it is never answered from here.
pub(crate) const PROBE_PREFIX: &[u8] = b".attache-";

// === impl MountedFs ===

impl Filesystem for MountedFs {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            // The host says when content changes. A new time alone must not drop the cache.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        ] {
            // What this kernel lacks only costs speed.
            let _ = config.add_capabilities(wanted);
        }
        // Without it, the kernel can't open a folder without asking.
        let can_skip = config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT).is_ok();
        self.0.opens_folders.store(!can_skip, Ordering::Relaxed);
        if self.0.has_locks {
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS);
        }
        let _ = config.set_max_write(u32::try_from(MAX_DATA).unwrap_or(u32::MAX));
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        or_lost!(self, reply);
        if name.len() > MAX_NAME {
            return reply.error(Errno::ENAMETOOLONG);
        }
        let mut state = self.0.lock();
        let bytes = name.as_bytes();
        let is_probe = parent.0 == ROOT && bytes.starts_with(PROBE_PREFIX);
        let is_up = self.0.link.is_up();
        match state.look_up(parent.0, bytes) {
            Lookup::Found(ino) if is_up => self.0.reply_entry(&mut state, ino, reply),
            Lookup::Free if is_up && !is_probe => self.0.reply_free(&mut state, parent.0, reply),
            _ if !is_up || is_probe || state.tree.is_listed(parent.0, Instant::now()) => {
                self.look_up_at_host(state, parent.0, bytes, reply);
            }
            _ => {
                let name = bytes.to_vec();
                self.0.list(
                    state,
                    &self.0,
                    parent.0,
                    Box::new(move |shared, done| {
                        let mut state = shared.lock();
                        match (done, state.look_up(parent.0, &name)) {
                            (Err(errno), _) => reply.error(errno),
                            (Ok(()), Lookup::Found(ino)) => shared.reply_entry(&mut state, ino, reply),
                            (Ok(()), Lookup::Free) => shared.reply_free(&mut state, parent.0, reply),
                            (Ok(()), Lookup::Unknown) => reply.error(Errno::ENOENT),
                        }
                    }),
                );
            }
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.0.lock().tree.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        or_lost!(self, reply);
        let state = self.0.lock();
        if self.0.link.is_up() && state.tree.is_valid(ino.0, Instant::now()) {
            return self.0.reply_attr(&state, ino.0, reply);
        }
        let at_host = |handle: &FileHandle| state.files.get(&handle.0).is_some_and(|file| file.is_at_host);
        let (path, handle) = (state.tree.path(ino.0), fh.filter(at_host));
        if path.is_none() && handle.is_none() {
            // Removed, and only open here: nobody else can change it.
            return self.0.reply_attr(&state, ino.0, reply);
        }
        let shared = Arc::clone(&self.0);
        self.0.ask(
            state,
            |id| match (handle, &path) {
                (Some(handle), _) => FsRequest::HandleStat { id, handle: handle.0 }.write(),
                (None, path) => FsRequest::Stat { id, path: path.as_deref().unwrap_or_default() }.write(),
            },
            Box::new(move |done| match done {
                Ok(answer) => {
                    let mut state = shared.lock();
                    if shared.learn(ino.0, &answer, &mut state) || handle.is_some() {
                        shared.reply_attr(&state, ino.0, reply);
                    } else {
                        // The kernel looks the path up again.
                        reply.error(Errno::ESTALE);
                    }
                }
                Err(errno) => reply.error(unknown_handle(errno)),
            }),
        );
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        or_lost!(self, reply);
        let (accessed, modified) = (atime.map(file_time), mtime.map(file_time));
        let change = AttributeChange { size, mode: mode.map(|mode| mode & 0o7777), accessed, modified };
        let state = self.0.lock();
        if change == AttributeChange::default() {
            // Files of a lease belong to the delegating user: a new owner succeeds without effect.
            return self.0.reply_attr(&state, ino.0, reply);
        }
        let is_writer =
            |handle: &FileHandle| state.files.get(&handle.0).is_some_and(|file| file.is_at_host && file.flags.write);
        let (path, mut handle) = (state.tree.path(ino.0), fh.filter(is_writer));
        if path.is_none() && handle.is_none() {
            // Removed: any open handle reaches it.
            let open = state.files.iter().find(|(_, file)| file.ino == ino.0 && file.is_at_host);
            handle = open.map(|(handle, _)| FileHandle(*handle));
        }
        let is_here = match &path {
            Some(path) => self.0.is_judged_here(&state, state.tree.above(ino.0), path) && state.tree.is_watched(ino.0),
            None => handle.is_some() && state.is_write_back && self.0.link.is_up(),
        };
        if is_here && ino.0 != ROOT {
            let shared = Arc::clone(&self.0);
            let acknowledge = move |done| match done {
                Ok(()) => shared.reply_attr(&shared.lock(), ino.0, reply),
                Err(errno) => reply.error(errno),
            };
            let (file, handle) = ((ino.0, path.unwrap_or_default()), handle.map(|handle| handle.0));
            return self.0.set_attributes_here(state, file, handle, change, Box::new(acknowledge));
        }
        let (None, None) = (&path, &handle) else {
            let shared = Arc::clone(&self.0);
            return self.0.ask(
                state,
                |id| match (handle, &path) {
                    (Some(handle), _) => FsRequest::SetHandleAttributes { id, handle: handle.0, change }.write(),
                    (None, path) => {
                        FsRequest::SetAttributes { id, path: path.as_deref().unwrap_or_default(), change }.write()
                    }
                },
                Box::new(move |done| match done {
                    Ok(answer) => {
                        let mut state = shared.lock();
                        if change.size.is_some() {
                            state.tree.drop_content(ino.0);
                        }
                        if shared.learn(ino.0, &answer, &mut state) || handle.is_some() {
                            shared.reply_attr(&state, ino.0, reply);
                        } else {
                            reply.error(Errno::ESTALE);
                        }
                    }
                    Err(errno) => reply.error(unknown_handle_of(handle, errno)),
                }),
            );
        };
        reply.error(Errno::ESTALE);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        or_lost!(self, reply);
        let state = self.0.lock();
        let known = state.tree.node(ino.0).and_then(|node| node.target.clone());
        let is_pending = state.tree.node(ino.0).is_some_and(Node::is_pending);
        let is_valid = self.0.link.is_up() && (is_pending || state.tree.is_valid(ino.0, Instant::now()));
        if let Some(target) = known.filter(|_| is_valid) {
            return reply.data(&target);
        }
        let Some(path) = state.tree.path(ino.0) else { return reply.error(Errno::ESTALE) };
        self.0.ask(
            state,
            |id| FsRequest::Stat { id, path: &path }.write(),
            Box::new(move |done| match done {
                Ok(FsReply { entry: Some(entry), .. }) => match entry.target {
                    Some(target) => reply.data(&target),
                    None => reply.error(Errno::EINVAL),
                },
                Ok(_) => reply.error(Errno::EIO),
                Err(errno) => reply.error(errno),
            }),
        );
    }

    fn mknod(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        // Only ordinary files: nothing else could be opened.
        if mode & 0o170_000 != 0o100_000 && mode & 0o170_000 != 0 {
            return reply.error(Errno::EPERM);
        }
        let handle = self.0.lock().new_handle();
        let flags = FsOpenFlags { write: true, create: true, exclusive: true, ..FsOpenFlags::default() };
        self.create_name((parent, name), None, reply, |id, path| {
            FsRequest::Open { id, handle, path, flags, mode: mode & 0o7777 }.write()
        });
        self.0.close_at_host(handle);
    }

    fn mkdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let mode = mode & 0o7777;
        let local = LocalEntry { kind: FileKind::Folder, mode, target: None };
        self.create_name((parent, name), Some(local), reply, |id, path| FsRequest::MakeDir { id, path, mode }.write());
    }

    fn symlink(&self, _req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let local = LocalEntry { kind: FileKind::Link, mode: 0o777, target: Some(target) };
        self.create_name((parent, link_name), Some(local), reply, |id, path| {
            FsRequest::Symlink { id, path, target }.write()
        });
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        or_lost!(self, reply);
        let state = self.0.lock();
        // A removed file has no path. The host refuses the folder itself.
        let from = state.tree.path(ino.0).unwrap_or_default();
        let to = match Self::path_of(&state, newparent, newname) {
            Ok(path) => path,
            Err(errno) => return reply.error(errno),
        };
        let (shared, name, at) = (Arc::clone(&self.0), newname.as_bytes().to_vec(), to.clone());
        self.0.ask(
            state,
            |id| FsRequest::HardLink { id, from: &from, to: &at }.write(),
            Box::new(move |done| match done {
                Ok(answer) => {
                    let mut state = shared.lock();
                    state.lost.remove(&to);
                    // A file that was created here, and whose answer was lost with a connection, must not become two.
                    shared.recognise(&mut state, ino.0, &answer);
                    drop(state);
                    shared.reply_new_entry(newparent.0, &name, &answer, reply);
                }
                Err(errno) => reply.error(errno),
            }),
        );
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove_name(parent, name, FileKind::File, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove_name(parent, name, FileKind::Folder, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        or_lost!(self, reply);
        if flags != RenameFlags::empty() && flags != RenameFlags::RENAME_NOREPLACE {
            return reply.error(Errno::EINVAL);
        }
        let mut state = self.0.lock();
        let paths = Self::path_of(&state, parent, name)
            .and_then(|from| Self::path_of(&state, newparent, newname).map(|to| (from, to)));
        let (from, to) = match paths {
            Ok(paths) => paths,
            Err(errno) => return reply.error(errno),
        };
        if let Lookup::Found(ino) = state.look_up(newparent.0, newname.as_bytes()) {
            self.0.open_before_removal(&mut state, ino);
        }
        let moved = ((parent.0, name.as_bytes()), (newparent.0, newname.as_bytes()));
        if flags.is_empty()
            && self.0.is_judged_here(&state, parent.0, &from)
            && self.0.is_judged_here(&state, newparent.0, &to)
            && FsShared::is_simple_move(&state, moved.0, moved.1)
        {
            return self.0.rename_here(state, moved.0, moved.1, (from, to), reply);
        }
        let (in_kernel, is_doubtful) = (state.tree.named(parent.0, name.as_bytes()), self.0.has_untold_names());
        let shared = Arc::clone(&self.0);
        let (name, newname, at) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec(), to.clone());
        self.0.ask(
            state,
            |id| FsRequest::Rename { id, from: &from, to: &at, replace: flags.is_empty() }.write(),
            Box::new(move |done| match done {
                Ok(answer) => {
                    let mut state = shared.lock();
                    let mut out = Vec::new();
                    let moved = ((parent.0, &name[..]), (newparent.0, &newname[..]));
                    state.tree.apply_rename(moved.0, moved.1, answer.stamp, &mut out);
                    state.lost.remove(&to);
                    let now = shared.learn_entry(&mut state, newparent.0, &newname, &answer);
                    if is_doubtful || (in_kernel.is_some() && in_kernel != now) {
                        // Somebody on the host was in between: the kernel has moved another file than the host.
                        out.push(Invalidation::Entry { folder: newparent.0, name: newname.clone() });
                    }
                    shared.invalidate(out);
                    let from = FsReply { folder: answer.from_folder, ..answer };
                    shared.learn_folder(&mut state, parent.0, &from);
                    reply.ok();
                }
                Err(errno) => reply.error(errno),
            }),
        );
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        or_lost!(self, reply);
        let flags = FsOpenFlags { create: false, exclusive: false, ..open_flags(flags.0) };
        let mut state = self.0.lock();
        if !state.has_room(flags.write || flags.truncate) {
            return reply.error(Errno::ENFILE);
        }
        let handle = state.new_handle();
        if self.0.link.is_up() && !flags.write && !flags.truncate && state.tree.is_watched(ino.0) {
            state.files.insert(handle, OpenFile::new(ino.0, flags));
            return reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE);
        }
        let Some(path) = state.tree.path(ino.0) else { return reply.error(Errno::ESTALE) };
        let is_kept = state.tree.is_watched(ino.0);
        // Whether a write-protected file can be opened depends on the host's user.
        let is_writable = state.tree.node(ino.0).is_some_and(|node| node.attributes.mode & 0o200 != 0);
        if is_kept && is_writable && self.0.is_judged_here(&state, state.tree.above(ino.0), &path) {
            let acknowledge = move |done| match done {
                Ok(()) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
                Err(errno) => reply.error(errno),
            };
            return self.0.open_here(state, (ino.0, handle), path, flags, Box::new(acknowledge));
        }
        state.files.insert(handle, OpenFile { is_at_host: true, ..OpenFile::new(ino.0, flags) });
        let shared = Arc::clone(&self.0);
        self.0.ask(
            state,
            |id| FsRequest::Open { id, handle, path: &path, flags, mode: 0 }.write(),
            Box::new(move |done| {
                let mut state = shared.lock();
                match done {
                    Ok(answer) => {
                        if flags.truncate {
                            state.tree.drop_content(ino.0);
                        }
                        if !shared.learn(ino.0, &answer, &mut state) {
                            // Somebody on the host replaced it. The kernel looks the path up again.
                            state.files.remove(&handle);
                            shared.close_at_host(handle);
                            return reply.error(Errno::ESTALE);
                        }
                        let kept = if is_kept { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() };
                        reply.opened(FileHandle(handle), kept);
                    }
                    Err(errno) => {
                        state.files.remove(&handle);
                        reply.error(errno);
                    }
                }
            }),
        );
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        or_lost!(self, reply);
        let flags = FsOpenFlags { create: true, ..open_flags(flags) };
        let mut state = self.0.lock();
        let path = match Self::path_of(&state, parent, name) {
            Ok(path) => path,
            Err(errno) => return reply.error(errno),
        };
        if !state.has_room(true) {
            return reply.error(Errno::ENFILE);
        }
        let handle = state.new_handle();
        let (shared, name, mode) = (Arc::clone(&self.0), name.as_bytes().to_vec(), mode & 0o7777);
        let entry = LocalEntry { kind: FileKind::File, mode, target: None };
        let at = path.clone();
        if !flags.exclusive && self.0.can_create_here(&state, (parent.0, &name), &path, &entry) {
            let (ino, done) = FsShared::create_here(&mut state, (parent.0, &name), entry);
            state.files.insert(handle, OpenFile { is_at_host: true, ..OpenFile::new(ino, flags) });
            let change = LocalChange {
                path,
                kind: ChangeKind::Replaces,
                bytes: 0,
                request: |id| FsRequest::Open { id, handle, path: &at, flags, mode }.write(),
                done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                    done(state, answer, out);
                    if let Err(errno) = answer {
                        state.fail_file(handle, errno);
                    }
                },
            };
            let acknowledge = move |done| match done {
                Ok(()) => shared.reply_created(&mut shared.lock(), (ino, handle), reply),
                Err(errno) => reply.error(errno),
            };
            return self.0.send_change(state, change, Box::new(acknowledge));
        }
        self.0.ask(
            state,
            |id| FsRequest::Open { id, handle, path: &at, flags, mode }.write(),
            Box::new(move |done| {
                let answer = match done {
                    Ok(answer) => answer,
                    Err(errno) => return reply.error(errno),
                };
                let mut state = shared.lock();
                let ino = shared.learn_entry(&mut state, parent.0, &name, &answer);
                let Some(ino) = ino.filter(|_| state.tree.is_answer((parent.0, &name), &answer)) else {
                    // Somebody on the host took the name from it. The kernel tries once more.
                    shared.close_at_host(handle);
                    return reply.error(Errno::ESTALE);
                };
                if flags.truncate {
                    state.tree.drop_content(ino);
                    state.lost.remove(&path);
                }
                state.files.insert(handle, OpenFile { is_at_host: true, ..OpenFile::new(ino, flags) });
                shared.reply_created(&mut state, (ino, handle), reply);
            }),
        );
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        or_lost!(self, reply);
        let state = self.0.lock();
        if let Some(content) = state.tree.content(ino.0, Instant::now()).filter(|_| self.0.link.is_up()) {
            return reply.data(part(&content, offset, size));
        }
        let read = PendingRead { handle: fh.0, offset, size, reply };
        let is_small = state.tree.node(ino.0).is_some_and(|node| node.attributes.size <= FETCH_WHOLE);
        let is_at_host = state.files.get(&fh.0).is_some_and(|file| file.is_at_host);
        if is_small && !is_at_host {
            self.0.fetch(state, ino.0, read);
        } else {
            self.0.read_at_host(state, read);
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        or_lost!(self, reply);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let acknowledge = move |done| match done {
            Ok(()) => reply.written(length),
            Err(errno) => reply.error(errno),
        };
        self.0.write_here(self.0.lock(), fh.0, offset, data, Box::new(acknowledge));
    }

    fn flush(&self, _req: &Request, ino: INodeNo, fh: FileHandle, lock_owner: LockOwner, reply: ReplyEmpty) {
        let mut state = self.0.lock();
        // Closing a file once unlocks what the program has locked of it.
        self.0.unlock(&mut state, (ino.0, lock_owner.0), LockRange::WHOLE);
        let is_write_back = state.is_write_back;
        let Some(file) = state.files.get_mut(&fh.0) else { return reply.ok() };
        if file.unconfirmed > 0 && !is_write_back {
            return file.flushes.push(reply);
        }
        match file.failure.take() {
            Some(errno) if file.flags.write => reply.error(errno),
            _ => reply.ok(),
        }
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut state = self.0.lock();
        if let Some(owner) = lock_owner {
            self.0.unlock(&mut state, (ino.0, owner.0), LockRange::WHOLE);
        }
        if state.files.remove(&fh.0).is_some_and(|file| file.is_at_host) {
            self.0.close_at_host(fh.0);
        }
        drop(state);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        or_lost!(self, reply);
        let mut state = self.0.lock();
        let file = state.files.get_mut(&fh.0);
        if let Some(errno) = file.and_then(|file| file.failure.take()) {
            return reply.error(errno);
        }
        let handle = state.files.get(&fh.0).filter(|file| file.is_at_host).map(|_| fh.0);
        let shared = Arc::clone(&self.0);
        self.0.ask(
            state,
            |id| match handle {
                Some(handle) => FsRequest::Sync { id, handle }.write(),
                // Nothing of it is missing at the host once this is answered.
                None => FsRequest::Space { id }.write(),
            },
            // Whatever was sent before it was answered before it.
            Box::new(move |done| {
                let failure = shared.lock().files.get_mut(&fh.0).and_then(|file| file.failure.take());
                let done = done.map(drop).map_err(unknown_handle);
                answer_empty(reply, failure.map_or(done, Err));
            }),
        );
    }

    fn getlk(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        or_lost!(self, reply);
        let Ok(Some(kind)) = lock_kind(typ) else { return reply.error(Errno::EINVAL) };
        let range = LockRange { start, end };
        let wanted = WantedLock { handle: fh.0, file: ino.0, owner: lock_owner.0, range, kind };
        self.0.test_lock(self.0.lock(), wanted, reply);
    }

    fn setlk(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        _pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        or_lost!(self, reply);
        let (range, owner) = (LockRange { start, end }, lock_owner.0);
        let mut state = self.0.lock();
        match lock_kind(typ) {
            Ok(Some(kind)) => {
                let wanted = WantedLock { handle: fh.0, file: ino.0, owner, range, kind };
                let waiter = LockWaiter::new(reply, sleep.then(|| req.pid()));
                self.0.lock_file(state, wanted, waiter);
            }
            Ok(None) => {
                self.0.unlock(&mut state, (ino.0, owner), range);
                reply.ok();
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        or_lost!(self, reply);
        let size = match mode {
            0 => SizeAfter::Extended,
            libc::FALLOC_FL_KEEP_SIZE => SizeAfter::Unchanged,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let (shared, handle) = (Arc::clone(&self.0), fh.0);
        self.0.ask(
            self.0.lock(),
            |id| FsRequest::Allocate { id, handle, offset, length, size }.write(),
            Box::new(move |done| match done {
                Ok(answer) => {
                    let mut state = shared.lock();
                    state.tree.drop_content(ino.0);
                    shared.learn(ino.0, &answer, &mut state);
                    reply.ok();
                }
                Err(errno) => reply.error(unknown_handle(errno)),
            }),
        );
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        or_lost!(self, reply);
        if self.0.opens_folders.load(Ordering::Relaxed) {
            // What is in it is read without a handle.
            return reply.opened(FileHandle(0), FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE);
        }
        // The kernel opens folders by itself from now on.
        reply.error(Errno::ENOSYS);
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.read_folder(ino.0, offset, FolderReply::Names(reply));
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.read_folder(ino.0, offset, FolderReply::Entries(reply));
    }

    fn releasedir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        or_lost!(self, reply);
        let shared = Arc::clone(&self.0);
        self.0.ask(
            self.0.lock(),
            |id| FsRequest::Space { id }.write(),
            Box::new(move |done| {
                let untold = shared.lock().untold.take();
                answer_empty(reply, untold.map_or(done.map(drop), Err));
            }),
        );
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        or_lost!(self, reply);
        self.0.ask(
            self.0.lock(),
            |id| FsRequest::Space { id }.write(),
            Box::new(move |done| {
                let answer = match done {
                    Ok(answer) => answer,
                    Err(errno) => return reply.error(errno),
                };
                let (numbers, _) = answer.data.as_chunks::<8>();
                let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_be_bytes(*bytes)).collect();
                let [block, blocks, free, available, files, files_free, name] = numbers[..] else {
                    return reply.error(Errno::EIO);
                };
                let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
                reply.statfs(blocks, free, available, files, files_free, small(block), small(name), small(block));
            }),
        );
    }
}
