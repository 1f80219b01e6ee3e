//! Carries out the requests of one channel, in the order in which they arrive.

use std::{collections::hash_map::Entry, sync::Arc, thread};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    host::{FsHost, parent},
    mounts::{FsMounts, MountClaim, MountProgress, OpenFiles},
    outbox::FsUrgency,
    pusher::{PushBudget, READ, push_tree, read_whole},
    watcher::WatchedFolders,
};
use crate::{
    chunks::{Chunk, each_chunk},
    export::{CreateMode, ExportConnection, ExportFile, ExportRefusal, FileOpenOptions, LOCKED_RANGES, ReplaceMode},
    fs_wire::{
        FsEntry, FsEvent, FsFailure, FsOpenFlags, FsReply, FsRequest, FsVersion, MAX_COPY, MAX_DATA, MalformedFrame,
        Stamp, VERSION, WantedLock,
    },
    sftp::OPEN_FILES,
};

pub(super) struct FsSession {
    host: Arc<FsHost>,
    connection: ExportConnection,
    locator: String,
    /// How many more files the lease can open.
    budget: Arc<Semaphore>,
    mounts: Arc<FsMounts>,
    /// The mount that it serves, once the client has named it.
    mount: Option<MountClaim>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Why a session can't continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum FsSessionEnd {
    #[error(transparent)]
    Malformed(#[from] MalformedFrame),
    #[error("the client speaks another version, or asks for another folder")]
    Mismatch,
    #[error("the lease has ended")]
    Revoked,
    #[error("the mount has another connection now")]
    Superseded,
    #[error("can't start a thread: {0}")]
    Thread(std::io::Error),
}

/// A reply above this size waits behind smaller ones.
const SMALL_REPLY: usize = 16 << 10;
/// For replies that a request has only one kind of.
const NOTHING: FsReply = FsReply::EMPTY;

/// As Linux numbers them, because the other side is Linux.
fn errno_of(refusal: &ExportRefusal) -> u32 {
    use rustix::io::Errno;
    let errno = match refusal {
        ExportRefusal::NotFound => Errno::NOENT,
        ExportRefusal::Denied(_) => Errno::ACCESS,
        ExportRefusal::ReadOnly => Errno::ROFS,
        ExportRefusal::Exists => Errno::EXIST,
        ExportRefusal::NotEmpty => Errno::NOTEMPTY,
        ExportRefusal::NotADirectory => Errno::NOTDIR,
        ExportRefusal::IsADirectory => Errno::ISDIR,
        ExportRefusal::Invalid => Errno::INVAL,
        ExportRefusal::Quota(OPEN_FILES) => Errno::NFILE,
        ExportRefusal::Quota(LOCKED_RANGES) => Errno::NOLCK,
        ExportRefusal::Quota(_) => Errno::DQUOT,
        ExportRefusal::Locked => Errno::AGAIN,
        ExportRefusal::Changed => Errno::STALE,
        ExportRefusal::DiskFull => Errno::NOSPC,
        ExportRefusal::Unsupported => Errno::OPNOTSUPP,
        ExportRefusal::Revoked | ExportRefusal::Interrupted | ExportRefusal::Io(_) => Errno::IO,
    };
    errno.raw_os_error().unsigned_abs()
}

// === impl FsSession ===

impl FsSession {
    pub(super) fn new(host: Arc<FsHost>, locator: String, budget: Arc<Semaphore>, mounts: Arc<FsMounts>) -> Self {
        let connection = host.export.connect();
        Self { host, connection, locator, budget, mounts, mount: None, threads: Vec::new() }
    }

    /// Its files stay open for the next connection of the mount. Returns the threads to wait for.
    pub(super) fn finish(self) -> Vec<thread::JoinHandle<()>> {
        self.threads
    }

    pub(super) fn carry_out(&mut self, frame: &[u8]) -> Result<(), FsSessionEnd> {
        let request = FsRequest::read(frame)?;
        let Some(mount) = &self.mount else { return self.begin(&request) };
        let Some(id) = request.id() else {
            return match request {
                FsRequest::Received { bytes } => {
                    self.host.outbox.confirm(bytes);
                    Ok(())
                }
                _ => Err(FsSessionEnd::Mismatch),
            };
        };
        // Nobody waits for the answer any more. Changes that have arrived are still made.
        if self.host.has_ended() && request.only_looks() {
            return Ok(());
        }
        // It is answered by the listing itself.
        if let FsRequest::List { path, .. } = request {
            return match self.host.list(id, path, FsUrgency::Reply, |_, _| {}) {
                Err(refusal) => self.reply(id, Err(refusal)),
                Ok(()) => Ok(()),
            };
        }
        // What happens to a moved folder is reported after the reply, when the client knows its new path.
        let mut watched = matches!(request, FsRequest::Rename { .. } | FsRequest::Replace { .. })
            .then(|| self.host.watcher.folders());
        // Nothing is sent while the mount is held: its next connection may be waiting for it.
        let mut files = mount.hold().ok_or(FsSessionEnd::Superseded)?;
        let is_complete = files.incomplete.check(&request, |path| self.host.attributes(path).is_ok());
        let done = match (&request, &mut watched) {
            _ if is_complete.is_err() => is_complete.map(|()| NOTHING),
            (FsRequest::Rename { from, to, replace, .. }, Some(watched)) => self.rename(watched, from, to, *replace),
            (FsRequest::Replace { from, to, version, .. }, Some(watched)) => {
                self.expect(to, version).and_then(|()| self.rename(watched, from, to, true))
            }
            (FsRequest::Lock { .. } | FsRequest::Unlock { .. } | FsRequest::TestLock { .. }, _) => {
                self.lock(&mut files, &request)
            }
            _ => self.answer(&mut files.open, &request),
        };
        files.incomplete.note(&request, done.is_ok());
        files.note(id, done.as_ref().err().map(errno_of));
        drop(files);
        let made = match request {
            FsRequest::MakeDir { path, .. } if done.is_ok() => Some(path),
            _ => None,
        };
        self.reply(id, done)?;
        drop(watched);
        if let Some(path) = made {
            // So that the client needn't ask what is in it.
            let _ = self.host.list(0, path, FsUrgency::Reply, |_, _| {});
        }
        Ok(())
    }

    fn reply(&self, id: u32, done: Result<FsReply, ExportRefusal>) -> Result<(), FsSessionEnd> {
        match done {
            Ok(reply) => {
                let urgency = if reply.data.len() > SMALL_REPLY { FsUrgency::Data } else { FsUrgency::Reply };
                self.host.outbox.push(FsEvent::Done(FsReply { id, ..reply }).write(), urgency);
            }
            Err(ExportRefusal::Revoked) => return Err(FsSessionEnd::Revoked),
            Err(refusal) => {
                let failure = FsFailure { id, errno: errno_of(&refusal) };
                self.host.outbox.push(FsEvent::Failed(failure).write(), FsUrgency::Reply);
            }
        }
        Ok(())
    }

    /// The first request starts the stream of folders, contents and changes.
    fn begin(&mut self, request: &FsRequest<'_>) -> Result<(), FsSessionEnd> {
        let FsRequest::Hello { version: VERSION, locator, push_bytes, push_file, mount } = *request else {
            return Err(FsSessionEnd::Mismatch);
        };
        if locator != self.locator.as_bytes() {
            return Err(FsSessionEnd::Mismatch);
        }
        let (claim, welcome) = self.mounts.claim(mount, self.connection, &self.host);
        self.mount = Some(claim);
        self.host.outbox.push(FsEvent::Welcome(welcome).write(), FsUrgency::Reply);
        let budget = PushBudget { bytes: push_bytes, file: push_file.min(MAX_DATA as u64) };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(FsSessionEnd::Thread)
        };
        let (watching, pushing) = (Arc::clone(&self.host), Arc::clone(&self.host));
        self.threads.push(spawn("attache-fs-watch", Box::new(move || watching.watcher.run(&watching)))?);
        self.threads.push(spawn("attache-fs-push", Box::new(move || push_tree(&pushing, budget)))?);
        Ok(())
    }

    fn answer(&self, open: &mut OpenFiles, request: &FsRequest<'_>) -> Result<FsReply, ExportRefusal> {
        let export = &self.host.export;
        match *request {
            FsRequest::Stat { path, .. } => self.about(path, false),
            FsRequest::Open { handle, path, flags, mode, .. } => self.open(open, handle, path, flags, mode),
            FsRequest::Read { handle, offset, length, .. } => read(open, handle, offset, length),
            FsRequest::Write { handle, offset, data, .. } => {
                self.with_file(open, handle, |file| file.write_at(offset, data))
            }
            FsRequest::Sync { handle, .. } => self.with_file(open, handle, ExportFile::sync),
            FsRequest::HandleStat { handle, .. } => self.with_file(open, handle, |_| Ok(())),
            FsRequest::SetHandleAttributes { handle, ref change, .. } => {
                self.with_file(open, handle, |file| file.set_attributes(change))
            }
            FsRequest::Close { handle, .. } => {
                if let Some((file, _)) = open.remove(&handle) {
                    file.close();
                }
                Ok(NOTHING)
            }
            FsRequest::SetAttributes { path, ref change, .. } => {
                let before = self.host.attributes(path).ok();
                export.set_attributes(path, change)?;
                Ok(FsReply { before, ..self.about(path, false)? })
            }
            FsRequest::SetVersionAttributes { path, ref version, ref change, .. } => self
                .expect(path, version)
                .and_then(|()| export.set_attributes(path, change))
                .and_then(|()| self.about(path, false)),
            FsRequest::RemoveFile { path, .. } => self.remove(path, || export.remove_file(path)),
            FsRequest::RemoveDir { path, .. } => self.remove(path, || export.remove_dir(path)),
            FsRequest::MakeDir { path, mode, .. } => {
                export.make_dir(path, mode & 0o7777).and_then(|()| self.about(path, true))
            }
            FsRequest::Symlink { path, target, .. } => {
                export.symlink(target, path).and_then(|()| self.about(path, true))
            }
            FsRequest::HardLink { from, to, .. } => export.hard_link(from, to).and_then(|()| self.about(to, true)),
            FsRequest::Space { .. } => self.space(),
            FsRequest::Fetch { path, .. } => self.fetch(path),
            FsRequest::Copy { from, offset, length, to, to_offset, .. } => {
                let from = file(open, from)?;
                self.with_file(open, to, |to| copy(from, offset, length, to, to_offset))
            }
            FsRequest::Chunks { path, .. } => self.chunks(path),
            FsRequest::RemoveVersion { path, ref version, .. } => {
                self.remove(path, || self.expect(path, version).and_then(|()| export.remove_file(path)))
            }
            FsRequest::Allocate { handle, offset, length, size, .. } => {
                self.with_file(open, handle, |file| file.allocate(offset, length, size))
            }
            // These were handled before.
            FsRequest::Hello { .. }
            | FsRequest::Received { .. }
            | FsRequest::List { .. }
            | FsRequest::Lock { .. }
            | FsRequest::Unlock { .. }
            | FsRequest::TestLock { .. }
            | FsRequest::Rename { .. }
            | FsRequest::Replace { .. } => Err(ExportRefusal::Invalid),
        }
    }

    /// An entry, and after a change in its folder also the folder.
    fn about(&self, path: &[u8], with_folder: bool) -> Result<FsReply, ExportRefusal> {
        let stamp = self.host.stamp();
        let entry = Some(self.host.entry(path)?);
        let folder = if with_folder { self.host.attributes(parent(path)).ok() } else { None };
        Ok(FsReply { stamp, entry, folder, ..NOTHING })
    }

    fn remove(
        &self,
        path: &[u8],
        remove: impl FnOnce() -> Result<(), ExportRefusal>,
    ) -> Result<FsReply, ExportRefusal> {
        let before = self.host.stamp();
        remove()?;
        let stamp = self.stamp_of_name(path, None, before);
        Ok(FsReply { stamp, folder: self.host.attributes(parent(path)).ok(), ..NOTHING })
    }

    /// When a name was found to be what a change made of it: free, or the file with this number. If somebody has changed it
    /// again, what is reported about that counts more: the stamp is then the one from before the change.
    fn stamp_of_name(&self, path: &[u8], inode: Option<u64>, before: Stamp) -> Stamp {
        let stamp = self.host.stamp();
        let found = self.host.attributes(path).ok().map(|found| found.inode);
        if found == inode { stamp } else { before }
    }

    fn open(
        &self,
        open: &mut OpenFiles,
        handle: u64,
        path: &[u8],
        flags: FsOpenFlags,
        mode: u32,
    ) -> Result<FsReply, ExportRefusal> {
        let room = self.room()?;
        let how = FileOpenOptions {
            read: flags.read,
            write: flags.write,
            append: flags.append,
            truncate: flags.truncate,
            create: match (flags.create, flags.exclusive) {
                (false, _) => CreateMode::Never,
                (true, false) => CreateMode::IfMissing,
                (true, true) => CreateMode::New,
            },
            mode: flags.create.then_some(mode & 0o7777),
        };
        let before = if flags.truncate { self.host.attributes(path).ok() } else { None };
        let earlier = self.host.stamp();
        let file = self.host.export.open_file(path, &how)?.of(self.connection);
        // It is looked at through its handle, which doesn't say whether it still has its name.
        let inode = self.host.describe(&file.attributes()?).inode;
        let stamp = self.stamp_of_name(path, Some(inode), earlier);
        let attributes = self.host.describe(&file.attributes()?);
        let folder = if flags.create { self.host.attributes(parent(path)).ok() } else { None };
        open.insert(handle, (file, room));
        Ok(FsReply { stamp, entry: Some(FsEntry { attributes, target: None }), before, folder, ..NOTHING })
    }

    /// Does something with an open file, and reports its attributes before and after it.
    fn with_file(
        &self,
        open: &OpenFiles,
        handle: u64,
        act: impl FnOnce(&ExportFile) -> Result<(), ExportRefusal>,
    ) -> Result<FsReply, ExportRefusal> {
        let file = file(open, handle)?;
        let before = Some(self.host.describe(&file.attributes()?));
        act(file)?;
        let stamp = self.host.stamp();
        let attributes = self.host.describe(&file.attributes()?);
        Ok(FsReply { stamp, entry: Some(FsEntry { attributes, target: None }), before, ..NOTHING })
    }

    /// Locks, unlocks or asks for locks. Never waits for one: the client asks again.
    fn lock(&self, mount: &mut MountProgress, request: &FsRequest<'_>) -> Result<FsReply, ExportRefusal> {
        let MountProgress { open, locks, .. } = mount;
        match *request {
            FsRequest::Lock { wanted: WantedLock { handle, file: number, owner, range, kind }, .. } => {
                let (held, _) = match locks.entry((number, owner)) {
                    Entry::Occupied(held) => held.into_mut(),
                    Entry::Vacant(free) => {
                        let room = self.room()?;
                        free.insert((file(open, handle)?.locks()?, room))
                    }
                };
                // With what somebody else wrote before it was unlocked.
                self.with_file(open, handle, |_| held.set(range, Some(kind)))
            }
            FsRequest::Unlock { file: number, owner, range, .. } if range.is_whole() => {
                drop(locks.remove(&(number, owner)));
                Ok(NOTHING)
            }
            FsRequest::Unlock { file: number, owner, range, .. } => {
                locks.get_mut(&(number, owner)).map_or(Ok(()), |(held, _)| held.set(range, None))?;
                Ok(NOTHING)
            }
            FsRequest::TestLock { wanted: WantedLock { handle, file: number, owner, range, kind }, .. } => {
                let lock = match locks.get(&(number, owner)) {
                    Some((held, _)) => held.conflict(range, kind)?,
                    None => file(open, handle)?.locks()?.conflict(range, kind)?,
                };
                Ok(FsReply { lock, ..NOTHING })
            }
            _ => Err(ExportRefusal::Invalid),
        }
    }

    /// One more open file.
    fn room(&self) -> Result<OwnedSemaphorePermit, ExportRefusal> {
        Arc::clone(&self.budget).try_acquire_owned().map_err(|_| ExportRefusal::Quota(OPEN_FILES))
    }

    fn fetch(&self, path: &[u8]) -> Result<FsReply, ExportRefusal> {
        let (stamp, attributes, data) =
            read_whole(&self.host, path, MAX_DATA as u64)?.ok_or(ExportRefusal::Quota("content in one frame"))?;
        Ok(FsReply { stamp, entry: Some(FsEntry { attributes, target: None }), data, ..NOTHING })
    }

    fn chunks(&self, path: &[u8]) -> Result<FsReply, ExportRefusal> {
        let file = self.host.export.open_file(path, &READ)?;
        let stamp = self.host.stamp();
        let before = self.host.describe(&file.attributes()?);
        let mut data = Vec::new();
        each_chunk(FileReader { file: &file, offset: 0 }, |chunk, _| {
            if data.len() + Chunk::LENGTH > MAX_DATA {
                return Err(std::io::Error::other("more chunks than fit into one frame"));
            }
            chunk.write(&mut data);
            Ok(())
        })?;
        let attributes = self.host.describe(&file.attributes()?);
        if !before.is_same_content(&attributes) {
            return Err(ExportRefusal::Changed);
        }
        Ok(FsReply { stamp, entry: Some(FsEntry { attributes, target: None }), data, ..NOTHING })
    }

    /// Refuses to touch another version than the client knows.
    fn expect(&self, path: &[u8], version: &FsVersion) -> Result<(), ExportRefusal> {
        let found = self.host.attributes(path)?;
        if found.version() == *version { Ok(()) } else { Err(ExportRefusal::Changed) }
    }

    fn rename(
        &self,
        watched: &mut WatchedFolders,
        from: &[u8],
        to: &[u8],
        replace: bool,
    ) -> Result<FsReply, ExportRefusal> {
        let replace = if replace { ReplaceMode::Always } else { ReplaceMode::Never };
        let before = self.host.stamp();
        // No event about it is interpreted before the paths of watched folders are right again.
        self.host.export.rename(from, to, replace)?;
        watched.moved(from, to);
        let stamp = self.stamp_of_name(from, None, before);
        let reply = self.about(to, true)?;
        Ok(FsReply { stamp, from_folder: self.host.attributes(parent(from)).ok(), ..reply })
    }

    fn space(&self) -> Result<FsReply, ExportRefusal> {
        let space = self.host.export.space()?;
        let numbers = [
            space.block_size,
            space.blocks,
            space.blocks_free,
            space.blocks_available,
            space.files,
            space.files_free,
            space.name_max,
        ];
        Ok(FsReply { data: numbers.into_iter().flat_map(u64::to_be_bytes).collect(), ..NOTHING })
    }
}

fn file(open: &OpenFiles, handle: u64) -> Result<&ExportFile, ExportRefusal> {
    open.get(&handle).map(|(file, _)| file).ok_or(ExportRefusal::Invalid)
}

/// The content of a file, from its start.
struct FileReader<'a> {
    file: &'a ExportFile,
    offset: u64,
}

impl std::io::Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let filled = self.file.read_at(self.offset, buffer).map_err(std::io::Error::other)?;
        self.offset += filled as u64;
        Ok(filled)
    }
}

fn copy(from: &ExportFile, offset: u64, length: u64, to: &ExportFile, to_offset: u64) -> Result<(), ExportRefusal> {
    if length > MAX_COPY {
        return Err(ExportRefusal::Invalid);
    }
    let mut done = 0;
    let mut piece = vec![0; usize::try_from(length).unwrap_or(MAX_DATA).min(MAX_DATA)];
    while done < length {
        let wanted = usize::try_from(length - done).unwrap_or(MAX_DATA).min(piece.len());
        let filled = from.read_at(offset.saturating_add(done), &mut piece[..wanted])?;
        if filled == 0 {
            return Err(ExportRefusal::Changed);
        }
        to.write_at(to_offset.saturating_add(done), &piece[..filled])?;
        done += filled as u64;
    }
    Ok(())
}

fn read(open: &OpenFiles, handle: u64, offset: u64, length: u32) -> Result<FsReply, ExportRefusal> {
    let mut data = vec![0; (length as usize).min(MAX_DATA)];
    let filled = file(open, handle)?.read_at(offset, &mut data)?;
    data.truncate(filled);
    Ok(FsReply { data, ..NOTHING })
}
