//! Carries out the requests of one channel, in the order in which they arrive.

use std::{collections::HashMap, sync::Arc, thread};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    host::{FsHost, parent},
    outbox::FsUrgency,
    pusher::{PushBudget, push_tree, read_whole},
};
use crate::{
    export::{Connection, CreateMode, ExportFile, ExportRefusal, FileOpenOptions, ReplaceMode},
    fs_wire::{FsEvent, FsFailure, FsOpenFlags, FsReply, FsRequest, MAX_DATA, MalformedFrame, VERSION},
};

pub(super) struct FsSession {
    host: Arc<FsHost>,
    connection: Connection,
    locator: String,
    /// How many more files the lease can open.
    budget: Arc<Semaphore>,
    open: HashMap<u64, (ExportFile, OwnedSemaphorePermit)>,
    threads: Vec<thread::JoinHandle<()>>,
    began: bool,
}

/// Why a session can't continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum FsSessionEnd {
    #[error(transparent)]
    Malformed(#[from] MalformedFrame),
    #[error("the client speaks another version, or asks for another folder")]
    Stranger,
    #[error("the lease has ended")]
    Revoked,
    #[error("can't start a thread: {0}")]
    Thread(std::io::Error),
}

/// A reply above this size waits behind smaller ones.
const SMALL_REPLY: usize = 16 << 10;
/// For replies that a request has only one kind of.
const NOTHING: FsReply = FsReply { id: 0, stamp: 0, entry: None, folder: None, from_folder: None, data: Vec::new() };

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
        ExportRefusal::Quota(_) => Errno::DQUOT,
        ExportRefusal::DiskFull => Errno::NOSPC,
        ExportRefusal::Unsupported => Errno::OPNOTSUPP,
        ExportRefusal::Revoked | ExportRefusal::Interrupted | ExportRefusal::Io(_) => Errno::IO,
    };
    errno.raw_os_error().unsigned_abs()
}

// === impl FsSession ===

impl FsSession {
    pub(super) fn new(host: Arc<FsHost>, locator: String, budget: Arc<Semaphore>) -> Self {
        let connection = host.export.connect();
        Self { host, connection, locator, budget, open: HashMap::new(), threads: Vec::new(), began: false }
    }

    /// Closes all files, as if the connection had broken. Returns the threads to wait for.
    pub(super) fn finish(self) -> Vec<thread::JoinHandle<()>> {
        self.threads
    }

    pub(super) fn carry_out(&mut self, frame: &[u8]) -> Result<(), FsSessionEnd> {
        let request = FsRequest::read(frame)?;
        if !self.began {
            return self.begin(&request);
        }
        let (id, done) = match request {
            FsRequest::Hello { .. } => return Err(FsSessionEnd::Stranger),
            FsRequest::Received { bytes } => {
                self.host.outbox.confirm(bytes);
                return Ok(());
            }
            FsRequest::Close { handle } => {
                if let Some((file, _)) = self.open.remove(&handle) {
                    file.close();
                }
                return Ok(());
            }
            // It is answered by the listing itself.
            FsRequest::List { id, path } => match self.host.list(id, path, FsUrgency::Reply) {
                Ok(_) => return Ok(()),
                Err(refusal) => (id, Err(refusal)),
            },
            ref request => self.answer(request),
        };
        let made = match request {
            FsRequest::MakeDir { path, .. } if done.is_ok() => Some(path),
            _ => None,
        };
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
        if let Some(path) = made {
            // So that the client needn't ask what is in it.
            let _ = self.host.list(0, path, FsUrgency::Reply);
        }
        Ok(())
    }

    /// The first request starts the stream of folders, contents and changes.
    fn begin(&mut self, request: &FsRequest<'_>) -> Result<(), FsSessionEnd> {
        let FsRequest::Hello { version: VERSION, locator, push_bytes, push_file } = *request else {
            return Err(FsSessionEnd::Stranger);
        };
        if locator != self.locator.as_bytes() {
            return Err(FsSessionEnd::Stranger);
        }
        self.began = true;
        self.host.outbox.push(FsEvent::Welcome { version: VERSION }.write(), FsUrgency::Reply);
        let budget = PushBudget { bytes: push_bytes, file: push_file.min(MAX_DATA as u64) };
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(FsSessionEnd::Thread)
        };
        let (watching, pushing) = (Arc::clone(&self.host), Arc::clone(&self.host));
        self.threads.push(spawn("attache-fs-watch", Box::new(move || watching.watcher.run(&watching)))?);
        self.threads.push(spawn("attache-fs-push", Box::new(move || push_tree(&pushing, budget)))?);
        Ok(())
    }

    fn answer(&mut self, request: &FsRequest<'_>) -> (u32, Result<FsReply, ExportRefusal>) {
        match *request {
            FsRequest::Stat { id, path } => (id, self.about(path, false)),
            FsRequest::Open { id, handle, path, flags, mode } => (id, self.open(handle, path, flags, mode)),
            FsRequest::Read { id, handle, offset, length } => (id, self.read(handle, offset, length)),
            FsRequest::Write { id, handle, offset, data } => {
                (id, self.with_file(handle, |file| file.write_at(offset, data)))
            }
            FsRequest::Sync { id, handle } => (id, self.with_file(handle, ExportFile::sync)),
            FsRequest::HandleStat { id, handle } => (id, self.with_file(handle, |_| Ok(()))),
            FsRequest::SetHandleAttributes { id, handle, ref change } => {
                (id, self.with_file(handle, |file| file.set_attributes(change)))
            }
            FsRequest::SetAttributes { id, path, ref change } => {
                (id, self.host.export.set_attributes(path, change).and_then(|()| self.about(path, false)))
            }
            FsRequest::RemoveFile { id, path } => {
                (id, self.host.export.remove_file(path).map(|()| self.folder_of(path)))
            }
            FsRequest::RemoveDir { id, path } => (id, self.host.export.remove_dir(path).map(|()| self.folder_of(path))),
            FsRequest::MakeDir { id, path, mode } => {
                (id, self.host.export.make_dir(path, mode & 0o7777).and_then(|()| self.about(path, true)))
            }
            FsRequest::Symlink { id, path, target } => {
                (id, self.host.export.symlink(target, path).and_then(|()| self.about(path, true)))
            }
            FsRequest::HardLink { id, from, to } => {
                (id, self.host.export.hard_link(from, to).and_then(|()| self.about(to, true)))
            }
            FsRequest::Rename { id, from, to, replace } => (id, self.rename(from, to, replace)),
            FsRequest::Space { id } => (id, self.space()),
            FsRequest::Fetch { id, path } => (id, self.fetch(path)),
            // These were handled before.
            FsRequest::Hello { .. } | FsRequest::Received { .. } | FsRequest::Close { .. } | FsRequest::List { .. } => {
                (0, Err(ExportRefusal::Invalid))
            }
        }
    }

    /// An entry, and after a change in its folder also the folder.
    fn about(&self, path: &[u8], with_folder: bool) -> Result<FsReply, ExportRefusal> {
        let stamp = self.host.stamp();
        let entry = Some(self.host.entry(path)?);
        let folder = if with_folder { self.host.attributes(parent(path)).ok() } else { None };
        Ok(FsReply { stamp, entry, folder, ..NOTHING })
    }

    fn folder_of(&self, path: &[u8]) -> FsReply {
        let stamp = self.host.stamp();
        FsReply { stamp, folder: self.host.attributes(parent(path)).ok(), ..NOTHING }
    }

    fn open(&mut self, handle: u64, path: &[u8], flags: FsOpenFlags, mode: u32) -> Result<FsReply, ExportRefusal> {
        let full = ExportRefusal::Quota("files open at the same time");
        let room = Arc::clone(&self.budget).try_acquire_owned().map_err(|_| full)?;
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
        let file = self.host.export.open_file(path, &how)?.of(self.connection);
        if flags.resumed && flags.write {
            self.host.export.note_resumed(path);
        }
        let stamp = self.host.stamp();
        let attributes = self.host.describe(&file.attributes()?);
        let folder = if flags.create { self.host.attributes(parent(path)).ok() } else { None };
        self.open.insert(handle, (file, room));
        Ok(FsReply { stamp, entry: Some(crate::fs_wire::FsEntry { attributes, target: None }), folder, ..NOTHING })
    }

    fn file(&self, handle: u64) -> Result<&ExportFile, ExportRefusal> {
        self.open.get(&handle).map(|(file, _)| file).ok_or(ExportRefusal::Invalid)
    }

    /// Does something with an open file, and reports its attributes after it.
    fn with_file(
        &self,
        handle: u64,
        act: impl FnOnce(&ExportFile) -> Result<(), ExportRefusal>,
    ) -> Result<FsReply, ExportRefusal> {
        let file = self.file(handle)?;
        act(file)?;
        let stamp = self.host.stamp();
        let attributes = self.host.describe(&file.attributes()?);
        Ok(FsReply { stamp, entry: Some(crate::fs_wire::FsEntry { attributes, target: None }), ..NOTHING })
    }

    fn read(&self, handle: u64, offset: u64, length: u32) -> Result<FsReply, ExportRefusal> {
        let mut data = vec![0; (length as usize).min(MAX_DATA)];
        let filled = self.file(handle)?.read_at(offset, &mut data)?;
        data.truncate(filled);
        Ok(FsReply { data, ..NOTHING })
    }

    fn fetch(&self, path: &[u8]) -> Result<FsReply, ExportRefusal> {
        let (stamp, attributes, data) =
            read_whole(&self.host, path, MAX_DATA as u64)?.ok_or(ExportRefusal::Quota("content in one frame"))?;
        Ok(FsReply { stamp, entry: Some(crate::fs_wire::FsEntry { attributes, target: None }), data, ..NOTHING })
    }

    fn rename(&self, from: &[u8], to: &[u8], replace: bool) -> Result<FsReply, ExportRefusal> {
        let replace = if replace { ReplaceMode::Always } else { ReplaceMode::Never };
        // No event about it is interpreted before the paths of watched folders are right again.
        let mut watched = self.host.watcher.folders();
        self.host.export.rename(from, to, replace)?;
        watched.moved(from, to);
        drop(watched);
        let reply = self.about(to, true)?;
        Ok(FsReply { from_folder: self.host.attributes(parent(from)).ok(), ..reply })
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
