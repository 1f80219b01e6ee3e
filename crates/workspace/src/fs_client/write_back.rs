//! Changes that are acknowledged before the host has them. They are sent at once and in order, so whatever follows them
//! (a read, an `fsync`) sees them. The host's errors come later: they are told at the next `fsync` or `close` of the file,
//! and every change that didn't reach the host is named when the mount ends.
//!
//! Only what can be judged here is acknowledged early: the folder is known completely, and the host reports its changes. The
//! host decides about everything else first: exclusive creation and hard links (which serve as locks), moved folders,
//! `.git`, names that leases withhold, and links that lead out.

use std::sync::{Arc, MutexGuard};

use fuser::{Errno, ReplyEmpty};

use super::{
    convert::unknown_handle,
    link::OnDisconnect,
    shared::{Acknowledgement, FsShared, FsState, OpenFile},
    tree::{Confirmation, Invalidation, Lookup},
};
use crate::{
    export::{AttributeChange, FileKind, FileTime},
    fs_wire::{FsAttributes, FsEntry, FsOpenFlags, FsReply, FsRequest, NOW, Stamp},
};

/// A change that is sent after it was made here.
pub(super) struct LocalChange<M, D> {
    /// The path that is named if it fails.
    pub(super) path: Vec<u8>,
    pub(super) kind: ChangeKind,
    /// How many bytes it carries.
    pub(super) bytes: usize,
    /// Makes the request.
    pub(super) request: M,
    /// Runs when the host has answered.
    pub(super) done: D,
}

/// Something new, as it is shown until the host says what it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalEntry<'a> {
    pub(super) kind: FileKind,
    pub(super) mode: u32,
    /// Of a symbolic link.
    pub(super) target: Option<&'a [u8]>,
}

/// What a change makes of earlier losses at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeKind {
    /// The path is written from the start: they don't matter any more.
    Replaces,
    Removes,
    /// They are still missing.
    Alters,
}

/// What a change at the host led to.
pub(super) type Outcome<'a> = Result<&'a FsReply, Errno>;

/// How much may be acknowledged without being confirmed.
const WINDOW: usize = 16 << 20;
/// What a request costs beyond the bytes that it carries.
const REQUEST_COST: usize = 1 << 10;

/// Git on the host trusts what is in there, so the host checks it first.
fn is_in_git(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.eq_ignore_ascii_case(b".git"))
}

/// Whether a link surely stays in the shared folder.
fn stays_inside(path: &[u8], target: &[u8]) -> bool {
    let mut depth = path.iter().filter(|&&byte| byte == b'/').count();
    !target.starts_with(b"/")
        && target.split(|&byte| byte == b'/').all(|name| match name {
            b".." if depth == 0 => false,
            b".." => {
                depth -= 1;
                true
            }
            b"" | b"." => true,
            _ => {
                depth += 1;
                true
            }
        })
}

/// The attributes of something new, until the host says what they are. Its times are never shown before.
fn new_attributes(kind: FileKind, mode: u32, size: usize) -> FsAttributes {
    let time = FileTime { seconds: 0, nanos: 0 };
    let links = if kind == FileKind::Folder { 2 } else { 1 };
    FsAttributes { kind, mode, links, inode: 0, size: size as u64, accessed: time, modified: time, changed: time }
}

// === impl FsShared ===

impl FsShared {
    /// Whether a change of a name in a folder can be acknowledged before the host has it.
    pub(super) fn is_judged_here(&self, state: &FsState, folder: u64, path: &[u8]) -> bool {
        self.is_known_here(state, folder, path) && !is_in_git(path)
    }

    /// The same for a removal. Git removes its lock after each command, and the host lets it.
    pub(super) fn is_removal_judged_here(&self, state: &FsState, folder: u64, path: &[u8]) -> bool {
        self.is_known_here(state, folder, path) && (!is_in_git(path) || path.ends_with(b".git/index.lock"))
    }

    fn is_known_here(&self, state: &FsState, folder: u64, path: &[u8]) -> bool {
        let is_shown = |is_folder| self.shown.as_ref().is_some_and(|shown| shown.shows(path, is_folder));
        state.is_write_back
            && self.link.is_up()
            && state.tree.is_known_folder(folder)
            && is_shown(true)
            && is_shown(false)
    }

    /// Sends a change that was made here, and acknowledges it: at once, unless too much is unconfirmed.
    pub(super) fn send_change<M, D>(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        change: LocalChange<M, D>,
        acknowledge: Acknowledgement,
    ) where
        M: FnOnce(u32) -> Vec<u8>,
        D: FnOnce(&mut FsState, Outcome<'_>, &mut Vec<Invalidation>) + Send + 'static,
    {
        let LocalChange { path, kind, bytes, request, done } = change;
        let (this, cost) = (Arc::clone(self), bytes + REQUEST_COST);
        state.unconfirmed += cost;
        let named = path.clone();
        let sent = self.link.call(
            OnDisconnect::Resend { path: &named },
            request,
            Box::new(move |answer| {
                let mut state = this.lock();
                let mut out = Vec::new();
                done(&mut state, answer.as_ref().map_err(|errno| *errno), &mut out);
                this.invalidate(out);
                match (kind, answer) {
                    (ChangeKind::Alters, Ok(_)) => {}
                    (ChangeKind::Replaces | ChangeKind::Removes, Ok(_)) => drop(state.lost.remove(&path)),
                    // Its creation failed before, or somebody on the host was faster.
                    (ChangeKind::Removes, Err(errno)) if errno.code() == Errno::ENOENT.code() => {
                        state.lost.remove(&path);
                    }
                    (_, Err(errno)) => state.lose(path, errno),
                }
                state.unconfirmed = state.unconfirmed.saturating_sub(cost);
                let mut released = Vec::new();
                while state.unconfirmed <= WINDOW
                    && let Some(waiting) = state.waiting.pop_front()
                {
                    released.push(waiting);
                }
                drop(state);
                let is_lost = this.link.is_lost();
                for acknowledge in released {
                    acknowledge(if is_lost { Err(Errno::EIO) } else { Ok(()) });
                }
            }),
        );
        if let Err(failed) = sent {
            drop(state);
            failed(Err(Errno::EIO));
            return acknowledge(Err(Errno::EIO));
        }
        // Without a connection, the lease may have ended.
        if state.unconfirmed > WINDOW || !self.link.is_up() {
            return state.waiting.push_back(acknowledge);
        }
        drop(state);
        acknowledge(Ok(()));
    }

    pub(super) fn can_create_here(
        &self,
        state: &FsState,
        (folder, name): (u64, &[u8]),
        path: &[u8],
        entry: &LocalEntry<'_>,
    ) -> bool {
        state.look_up(folder, name) == Lookup::Free
            && self.is_judged_here(state, folder, path)
            && entry.target.is_none_or(|target| stays_inside(path, target))
    }

    /// Creates something at a free name. Returns its number, and what is to be done when the host has answered.
    pub(super) fn create_here(
        state: &mut FsState,
        (folder, name): (u64, &[u8]),
        LocalEntry { kind, mode, target }: LocalEntry<'_>,
    ) -> (u64, impl FnOnce(&mut FsState, Outcome<'_>, &mut Vec<Invalidation>) + Send + use<>) {
        let change = state.tree.begin_change();
        let attributes = new_attributes(kind, mode, target.map_or(0, <[u8]>::len));
        let entry = FsEntry { attributes, target: target.map(<[u8]>::to_vec) };
        let ino = state.tree.create_locally((folder, name), change, entry);
        let name = name.to_vec();
        let done = move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
            state.confirm(ino, change, answer, out);
            state.confirm_names(&[(folder, &name)], change, answer, out);
        };
        (ino, done)
    }

    pub(super) fn remove_here(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        (folder, name): (u64, &[u8]),
        (path, kind): (Vec<u8>, FileKind),
        reply: ReplyEmpty,
    ) {
        let change = state.tree.begin_change();
        let mut out = Vec::new();
        state.tree.remove_locally((folder, name), change, &mut out);
        self.invalidate(out);
        let (name, at) = (name.to_vec(), path.clone());
        let change = LocalChange {
            path,
            kind: ChangeKind::Removes,
            bytes: 0,
            request: move |id| match kind {
                FileKind::Folder => FsRequest::RemoveDir { id, path: &at }.write(),
                _ => FsRequest::RemoveFile { id, path: &at }.write(),
            },
            done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                state.confirm_names(&[(folder, &name)], change, answer, out);
            },
        };
        self.send_change(state, change, Box::new(move |done| answer_empty(reply, done)));
    }

    /// Whether a move can be judged here: of a file or a link, to a free name or over another file or link.
    pub(super) fn is_simple_move(state: &FsState, from: (u64, &[u8]), to: (u64, &[u8])) -> bool {
        let is_plain = |ino: u64| {
            state.tree.is_watched(ino)
                && state
                    .tree
                    .node(ino)
                    .is_some_and(|node| matches!(node.attributes.kind, FileKind::File | FileKind::Link))
        };
        let is_source = matches!(state.look_up(from.0, from.1), Lookup::Found(ino) if is_plain(ino));
        is_source
            && match state.look_up(to.0, to.1) {
                Lookup::Free => true,
                Lookup::Found(ino) => is_plain(ino),
                Lookup::Unknown => false,
            }
    }

    pub(super) fn rename_here(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        (from, name): (u64, &[u8]),
        (to, new_name): (u64, &[u8]),
        (from_path, to_path): (Vec<u8>, Vec<u8>),
        reply: ReplyEmpty,
    ) {
        let change = state.tree.begin_change();
        let mut out = Vec::new();
        let moved = match state.look_up(from, name) {
            Lookup::Found(ino) => ino,
            Lookup::Free | Lookup::Unknown => 0,
        };
        state.tree.rename_locally((from, name), (to, new_name), change, &mut out);
        if self.has_untold_names() {
            // The kernel may have moved what had the name before somebody on the host replaced it.
            out.push(Invalidation::Entry { folder: to, name: new_name.to_vec() });
        }
        self.invalidate(out);
        // What was lost of the file is lost under its new name.
        if let Some(errno) = state.lost.remove(&from_path) {
            state.lost.insert(to_path.clone(), errno);
        }
        let (name, new_name, path) = (name.to_vec(), new_name.to_vec(), to_path.clone());
        let change = LocalChange {
            path,
            kind: ChangeKind::Replaces,
            bytes: 0,
            request: move |id| FsRequest::Rename { id, from: &from_path, to: &to_path, replace: true }.write(),
            done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                state.confirm(moved, change, answer, out);
                if let Ok(answer) = answer
                    && from != to
                {
                    let about = Confirmation { stamp: answer.stamp, before: None, now: answer.from_folder };
                    state.tree.confirm(from, change, about, out);
                }
                state.confirm_names(&[(from, &name), (to, &new_name)], change, answer, out);
            },
        };
        self.send_change(state, change, Box::new(move |done| answer_empty(reply, done)));
    }

    /// Changes attributes through a handle, or through the path.
    pub(super) fn set_attributes_here(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        (ino, path): (u64, Vec<u8>),
        handle: Option<u64>,
        attributes: AttributeChange,
        acknowledge: Acknowledgement,
    ) {
        let change = state.tree.begin_change();
        state.tree.touch(ino, change);
        if attributes.size.is_some() {
            state.tree.drop_content(ino);
        }
        if let Some(node) = state.tree.node_mut(ino) {
            let known = &mut node.attributes;
            known.size = attributes.size.unwrap_or(known.size);
            known.mode = attributes.mode.unwrap_or(known.mode);
            known.accessed = attributes.accessed.filter(|time| *time != NOW).unwrap_or(known.accessed);
            known.modified = attributes.modified.filter(|time| *time != NOW).unwrap_or(known.modified);
        }
        let at = path.clone();
        let change = LocalChange {
            path,
            kind: ChangeKind::Alters,
            bytes: 0,
            request: move |id| match handle {
                Some(handle) => FsRequest::SetHandleAttributes { id, handle, change: attributes }.write(),
                None => FsRequest::SetAttributes { id, path: &at, change: attributes }.write(),
            },
            done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                state.confirm(ino, change, answer, out);
                if let (Err(errno), Some(handle)) = (answer, handle) {
                    state.fail_file(handle, unknown_handle(errno));
                }
            },
        };
        self.send_change(state, change, acknowledge);
    }

    /// Opens a file at the host that is open here from now on.
    pub(super) fn open_here(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        (ino, handle): (u64, u64),
        path: Vec<u8>,
        flags: FsOpenFlags,
        acknowledge: Acknowledgement,
    ) {
        state.files.insert(handle, OpenFile { is_at_host: true, ..OpenFile::new(ino, flags) });
        let change = state.tree.begin_change();
        if flags.truncate {
            state.tree.drop_content(ino);
            state.tree.touch(ino, change);
            if let Some(node) = state.tree.node_mut(ino) {
                node.attributes.size = 0;
            }
        }
        let at = path.clone();
        let change = LocalChange {
            path,
            kind: if flags.truncate { ChangeKind::Replaces } else { ChangeKind::Alters },
            bytes: 0,
            request: move |id| FsRequest::Open { id, handle, path: &at, flags, mode: 0 }.write(),
            done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                state.confirm(ino, change, answer, out);
                match answer {
                    Ok(answer) => state.note_opened(handle, answer),
                    Err(errno) => state.fail_file(handle, errno),
                }
            },
        };
        self.send_change(state, change, acknowledge);
    }

    /// Writes to an open file.
    pub(super) fn write_here(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, FsState>,
        handle: u64,
        offset: u64,
        data: &[u8],
        acknowledge: Acknowledgement,
    ) {
        let Some(file) = state.files.get_mut(&handle) else { return acknowledge(Err(Errno::EBADF)) };
        if let Some(errno) = file.failure {
            return acknowledge(Err(errno));
        }
        let (ino, length) = (file.ino, data.len());
        file.unconfirmed += length;
        let change = state.tree.begin_change();
        state.tree.drop_content(ino);
        state.tree.touch(ino, change);
        if let Some(node) = state.tree.node_mut(ino) {
            node.attributes.size = node.attributes.size.max(offset.saturating_add(length as u64));
        }
        let path = state.tree.path(ino).unwrap_or_default();
        let change = LocalChange {
            path,
            kind: ChangeKind::Alters,
            bytes: length,
            request: |id| FsRequest::Write { id, handle, offset, data }.write(),
            done: move |state: &mut FsState, answer: Outcome<'_>, out: &mut Vec<Invalidation>| {
                state.confirm(ino, change, answer, out);
                if let Err(errno) = answer {
                    // What the kernel has was never written.
                    out.push(Invalidation::Content(ino));
                    state.fail_file(handle, unknown_handle(errno));
                }
                let Some(file) = state.files.get_mut(&handle) else { return };
                file.unconfirmed = file.unconfirmed.saturating_sub(length);
                if file.unconfirmed == 0 {
                    let flushes = std::mem::take(&mut file.flushes);
                    let failure = if flushes.is_empty() { None } else { file.failure };
                    for reply in flushes {
                        answer_empty(reply, failure.map_or(Ok(()), Err));
                    }
                }
            },
        };
        self.send_change(state, change, acknowledge);
    }
}

pub(super) fn answer_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

// === impl FsState ===

impl FsState {
    /// A change of a file was carried out, or failed: then nothing is known about it any more.
    fn confirm(&mut self, ino: u64, change: Stamp, answer: Outcome<'_>, out: &mut Vec<Invalidation>) {
        let about = answer.map_or_else(
            |_| Confirmation::default(),
            |answer| {
                let now = answer.entry.as_ref().map(|entry| entry.attributes);
                Confirmation { stamp: answer.stamp, before: answer.before, now }
            },
        );
        self.tree.confirm(ino, change, about, out);
    }

    /// Changes of names were carried out, or failed. The last name and its folder are what the host reports.
    fn confirm_names(
        &mut self,
        names: &[(u64, &[u8])],
        change: Stamp,
        answer: Outcome<'_>,
        out: &mut Vec<Invalidation>,
    ) {
        for (index, &place) in names.iter().enumerate() {
            // Somebody on the host may have replaced it since.
            let is_same = |answer: &FsReply| index + 1 < names.len() || self.tree.is_answer(place, answer);
            match answer {
                Ok(answer) if is_same(answer) => self.tree.confirm_name(place, change, answer.stamp, out),
                _ => self.tree.doubt_name(place, change, out),
            }
        }
        let Some((folder, _)) = names.last() else { return };
        for (other, _) in names.iter().filter(|(other, _)| other != folder && answer.is_err()) {
            self.tree.confirm(*other, change, Confirmation::default(), out);
        }
        let about = answer.map_or_else(
            |_| Confirmation::default(),
            |answer| Confirmation { stamp: answer.stamp, before: None, now: answer.folder },
        );
        self.tree.confirm(*folder, change, about, out);
    }

    pub(super) fn fail_file(&mut self, handle: u64, errno: Errno) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.failure.get_or_insert(errno);
        }
    }

    /// Something that was acknowledged didn't happen. From now on, nothing is acknowledged early any more: the next one is
    /// told at once.
    fn lose(&mut self, path: Vec<u8>, errno: Errno) {
        self.is_write_back = false;
        self.untold.get_or_insert(errno);
        // A removed file has no name to report, and losing it matters to nobody.
        if !path.is_empty() {
            self.lost.entry(path).or_insert(errno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_may_lead_out_are_left_to_the_host() {
        for (path, target, expected) in [
            ("a", "b", true),
            ("a", "../b", false),
            ("d/a", "../b", true),
            ("d/a", "../../b", false),
            ("d/a", "x/../../b", true),
            ("a", "/etc/passwd", false),
        ] {
            assert_eq!(stays_inside(path.as_bytes(), target.as_bytes()), expected, "{path} {target}");
        }
        assert!(is_in_git(b"x/.GIT/config") && !is_in_git(b".gitignore"));
    }
}
