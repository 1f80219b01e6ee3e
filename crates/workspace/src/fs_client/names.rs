//! Names that programs look up, create and remove.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    sync::{Arc, MutexGuard},
};

use fuser::{Errno, INodeNo, ReplyEmpty, ReplyEntry};

use super::{
    filesystem::MountedFs,
    shared::{FsShared, FsState, or_lost},
    tree::Lookup,
    write_back::{ChangeKind, LocalChange, LocalEntry},
};
use crate::{export::FileKind, fs_wire::FsRequest};

pub(super) const MAX_NAME: usize = 255;

// === impl MountedFs ===

impl MountedFs {
    /// The path of a name, or why there can be none.
    pub(super) fn path_of(state: &FsState, folder: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        if name.len() > MAX_NAME {
            return Err(Errno::ENAMETOOLONG);
        }
        state.tree.path_of(folder.0, name.as_bytes()).ok_or(Errno::ENOENT)
    }

    /// Asks the host about one name.
    pub(super) fn look_up_at_host(&self, state: MutexGuard<'_, FsState>, folder: u64, name: &[u8], reply: ReplyEntry) {
        let Some(path) = state.tree.path_of(folder, name) else { return reply.error(Errno::ENOENT) };
        let (shared, name) = (Arc::clone(&self.0), name.to_vec());
        self.0.ask(
            state,
            |id| FsRequest::Stat { id, path: &path }.write(),
            Box::new(move |done| match done {
                Ok(answer) => shared.reply_new_entry(folder, &name, &answer, reply),
                Err(errno) => reply.error(errno),
            }),
        );
    }

    /// A request that creates a name and answers with its entry. What can be judged here is answered first.
    pub(super) fn create_name(
        &self,
        (folder, name): (INodeNo, &OsStr),
        local: Option<LocalEntry<'_>>,
        reply: ReplyEntry,
        make: impl FnOnce(u32, &[u8]) -> Vec<u8>,
    ) {
        or_lost!(self, reply);
        let mut state = self.0.lock();
        let path = match Self::path_of(&state, folder, name) {
            Ok(path) => path,
            Err(errno) => return reply.error(errno),
        };
        let shared = Arc::clone(&self.0);
        let name = name.as_bytes();
        if let Some(entry) = local.filter(|entry| self.0.can_create_here(&state, (folder.0, name), &path, entry)) {
            let (ino, done) = FsShared::create_here(&mut state, (folder.0, name), entry);
            let (kind, at) = (ChangeKind::Replaces, path.clone());
            let change = LocalChange { path, kind, bytes: 0, request: |id| make(id, &at), done };
            let acknowledge = move |done| match done {
                Ok(()) => shared.reply_entry(&mut shared.lock(), ino, reply),
                Err(errno) => reply.error(errno),
            };
            return self.0.send_change(state, change, Box::new(acknowledge));
        }
        let (name, at) = (name.to_vec(), path.clone());
        self.0.ask(
            state,
            |id| make(id, &at),
            Box::new(move |done| match done {
                Ok(answer) => {
                    shared.lock().lost.remove(&path);
                    shared.reply_new_entry(folder.0, &name, &answer, reply);
                }
                Err(errno) => reply.error(errno),
            }),
        );
    }

    pub(super) fn remove_name(&self, folder: INodeNo, name: &OsStr, kind: FileKind, reply: ReplyEmpty) {
        or_lost!(self, reply);
        let mut state = self.0.lock();
        let path = match Self::path_of(&state, folder, name) {
            Ok(path) => path,
            Err(errno) => return reply.error(errno),
        };
        if let Lookup::Found(ino) = state.look_up(folder.0, name.as_bytes()) {
            self.0.open_before_removal(&mut state, ino);
            let is_removable = kind != FileKind::Folder || state.tree.is_empty_folder(ino);
            if is_removable && self.0.is_removal_judged_here(&state, folder.0, &path) {
                return self.0.remove_here(state, (folder.0, name.as_bytes()), (path, kind), reply);
            }
        }
        let (shared, name) = (Arc::clone(&self.0), name.as_bytes().to_vec());
        self.0.ask(
            state,
            |id| match kind {
                FileKind::Folder => FsRequest::RemoveDir { id, path: &path }.write(),
                _ => FsRequest::RemoveFile { id, path: &path }.write(),
            },
            Box::new(move |done| match done {
                Ok(answer) => {
                    let mut state = shared.lock();
                    let mut out = Vec::new();
                    state.tree.apply_removal(folder.0, &name, answer.stamp, &mut out);
                    shared.learn_folder(&mut state, folder.0, &answer);
                    shared.invalidate(out);
                    reply.ok();
                }
                Err(errno) => reply.error(errno),
            }),
        );
    }
}
