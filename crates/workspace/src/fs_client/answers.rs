//! What the host answers, passed on: contents of files that are read, and names that were created, moved or looked up.

use std::{
    sync::{Arc, MutexGuard},
    time::Instant,
};

use fuser::{Errno, FileAttr, FileHandle, FopenFlags, Generation, INodeNo, ReplyCreate, ReplyEntry};

use super::{
    convert::{part, unknown_handle},
    link::OnDisconnect,
    shared::{FsShared, FsState, PendingRead},
    tree::{Invalidation, Origin},
};
use crate::fs_wire::{FsReply, FsRequest, MAX_DATA};

// === impl FsShared ===

impl FsShared {
    /// Reads from a file that is open at the host, or is opened there for it.
    pub(super) fn read_at_host(self: &Arc<Self>, mut state: MutexGuard<'_, FsState>, read: PendingRead) {
        let PendingRead { handle, offset, size, reply } = read;
        let Some(file) = state.files.get(&handle) else { return reply.error(Errno::EBADF) };
        let ino = file.ino;
        if !file.is_at_host {
            if let Some(errno) = file.failure {
                return reply.error(errno);
            }
            let Some(path) = state.tree.path(ino) else { return reply.error(Errno::ESTALE) };
            self.open_at_host(&mut state, handle, &path);
        }
        let length = size.min(u32::try_from(MAX_DATA).unwrap_or(u32::MAX));
        let this = Arc::clone(self);
        self.ask(
            state,
            |id| FsRequest::Read { id, handle, offset, length }.write(),
            Box::new(move |done| match done {
                Ok(answer) => {
                    reply.data(&answer.data);
                    if this.lock().files.get(&handle).is_some_and(|file| file.is_other) {
                        // The program gets what has the path now. The kernel must not keep it for the file from before.
                        this.invalidate(vec![Invalidation::Content(ino)]);
                    }
                }
                Err(errno) => {
                    let failure = this.lock().files.get(&handle).and_then(|file| file.failure);
                    reply.error(failure.unwrap_or_else(|| unknown_handle(errno)));
                }
            }),
        );
    }

    /// Fetches a small file, for everyone who reads it meanwhile.
    pub(super) fn fetch(self: &Arc<Self>, mut state: MutexGuard<'_, FsState>, ino: u64, read: PendingRead) {
        let Some(path) = state.tree.path(ino) else { return self.read_at_host(state, read) };
        let waiting = state.fetches.entry(ino).or_default();
        waiting.push(read);
        if waiting.len() > 1 {
            return;
        }
        let shared = Arc::clone(self);
        self.ask(
            state,
            |id| FsRequest::Fetch { id, path: &path }.write(),
            Box::new(move |done| {
                let mut state = shared.lock();
                let waiting = state.fetches.remove(&ino).unwrap_or_default();
                let fetched = done.ok().and_then(|answer| {
                    let attributes = answer.entry.as_ref()?.attributes;
                    let is_same = shared.learn(ino, &answer, &mut state);
                    let data: Arc<[u8]> = answer.data.into();
                    // Some of those who wait may have asked only after something was changed.
                    let is_current = is_same && state.tree.keep_content(ino, &attributes, Arc::clone(&data));
                    is_current.then_some(data)
                });
                drop(state);
                for read in waiting {
                    match &fetched {
                        Some(data) => read.reply.data(part(data, read.offset, read.size)),
                        // It has changed, or is gone: reading through a handle shows which.
                        None => shared.read_at_host(shared.lock(), read),
                    }
                }
            }),
        );
    }

    pub(super) fn recognise(&self, state: &mut FsState, ino: u64, answer: &FsReply) {
        let Some(entry) = &answer.entry else { return };
        let mut out = Vec::new();
        state.tree.recognise(ino, &entry.attributes, &mut out);
        self.invalidate(out);
    }

    /// Takes in a name that the host reported, and answers with it.
    pub(super) fn reply_new_entry(&self, folder: u64, name: &[u8], answer: &FsReply, reply: ReplyEntry) {
        let mut state = self.lock();
        match self.learn_entry(&mut state, folder, name, answer) {
            Some(ino) => self.reply_entry(&mut state, ino, reply),
            None => reply.error(Errno::EIO),
        }
    }

    pub(super) fn learn_entry(&self, state: &mut FsState, folder: u64, name: &[u8], answer: &FsReply) -> Option<u64> {
        let mut out = Vec::new();
        let entry = answer.entry.as_ref()?;
        let ino = state.tree.apply_entry(folder, name, answer.stamp, entry, Instant::now(), &mut out);
        self.learn_folder(state, folder, answer);
        self.invalidate(out);
        ino
    }

    pub(super) fn learn_folder(&self, state: &mut FsState, folder: u64, answer: &FsReply) {
        let Some(attributes) = answer.folder else { return };
        let mut out = Vec::new();
        state.tree.apply_attributes(folder, answer.stamp, attributes, Origin::Own, &mut out);
        self.invalidate(out);
    }

    /// Answers with a file that was created and is open.
    pub(super) fn reply_created(&self, state: &mut FsState, (ino, handle): (u64, u64), reply: ReplyCreate) {
        // The attributes hold only as long as both do.
        let (entry, attributes) = state.ttls(ino);
        let Some(node) = state.tree.node_mut(ino) else { return reply.error(Errno::EIO) };
        node.lookups += 1;
        let attr = FileAttr { ino: INodeNo(ino), ..self.attr(&node.attributes) };
        let kept = FopenFlags::FOPEN_KEEP_CACHE;
        reply.created(&entry.min(attributes), &attr, Generation(node.generation), FileHandle(handle), kept);
    }

    /// Closes a file at the host, without waiting for the result.
    pub(super) fn close_at_host(&self, handle: u64) {
        let _ = self.link.call(
            OnDisconnect::Resend { path: b"" },
            |id| FsRequest::Close { id, handle }.write(),
            Box::new(|_| {}),
        );
    }
}
