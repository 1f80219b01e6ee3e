//! Files of the copy that the host gets: completed beside their place, of chunks that the host has and those that are new,
//! and moved there if the host's version is still the one that was replaced.

use std::{collections::HashMap, io::Read as _};

use rustix::io::Errno;

use super::{
    base_texts::MAX_TEXT,
    engine::{BaseEntry, SMALL_FILE, SyncEngine, SyncPass, SyncStop},
    host_link::{HostLink, LinkLoss},
    local_tree::is_same,
    paths::{StagedWrite, in_git, staged_write},
    rules::{FileContent, PathState},
};
use crate::{
    chunks::{Chunk, ContentId, each_chunk},
    export::{AttributeChange, FileAttributes, FileKind},
    fs_wire::{FsAttributes, FsOpenFlags, FsReply, FsRequest, MAX_COPY},
};

/// A file whose requests are sent.
struct PendingPush<'a> {
    path: &'a Vec<u8>,
    mode: u32,
    how: StagedWrite,
    /// What the host has there.
    there: Option<FsAttributes>,
    /// In the order in which they are carried out. The first one opens the file.
    requests: Vec<u32>,
    handles: Vec<u64>,
    content: ContentId,
    chunks: Vec<Chunk>,
    text: Option<Vec<u8>>,
    bytes: u64,
    is_abandoned: bool,
}

/// By their hashes.
type KnownChunks = HashMap<[u8; 32], Chunk>;

/// What of a file is written where.
struct PushWriter<'a> {
    link: &'a mut HostLink,
    requests: Vec<u32>,
    to: u64,
    /// The open file that has known chunks, and the chunks.
    from: Option<(u64, KnownChunks)>,
    /// New bytes, and their place.
    new: (u64, Vec<u8>),
    /// Offset, length and destination of what the host has.
    known: (u64, u64, u64),
}

const MAX_AHEAD: usize = 64;
const MAX_AHEAD_BYTES: u64 = 4 << 20;
/// New bytes of one request.
const MAX_WRITE: usize = 256 << 10;
const WRITE: FsOpenFlags =
    FsOpenFlags { read: false, write: true, append: false, truncate: false, create: true, exclusive: false };

impl SyncEngine {
    pub(super) fn push_files(&mut self, pushed: &[(&Vec<u8>, u32)], pass: &SyncPass) -> Result<(), SyncStop> {
        let mut ahead: Vec<PendingPush<'_>> = Vec::new();
        let mut bytes = 0;
        for (number, (path, mode)) in pushed.iter().enumerate() {
            let states = &pass.states[*path];
            let is_same_content = matches!(
                (&states.local, &states.host),
                (PathState::File { content: ours, .. }, PathState::File { content: theirs, .. }) if ours == theirs
            );
            if is_same_content {
                self.push_attributes(path, *mode, pass)?;
                continue;
            }
            // What is small gets its name before a large one is sent.
            let is_large = pass.scan.entries.get(*path).is_some_and(|found| found.size > MAX_AHEAD_BYTES);
            if ahead.len() >= MAX_AHEAD || bytes > MAX_AHEAD_BYTES || (is_large && !ahead.is_empty()) {
                self.finish_all(std::mem::take(&mut ahead), pass)?;
                bytes = 0;
            }
            let how = staged_write(path, number as u64);
            if let Some(push) = self.begin_push((path, *mode), how, pass)? {
                bytes += push.bytes;
                ahead.push(push);
            }
        }
        self.finish_all(ahead, pass)
    }

    /// Of files whose content the host has.
    pub(super) fn push_times(&mut self, pass: &SyncPass) -> Result<(), SyncStop> {
        for path in &pass.touched {
            let Some(found) = pass.scan.entries.get(path) else { continue };
            self.push_attributes(path, found.mode & 0o777, pass)?;
        }
        Ok(())
    }

    fn push_attributes(&mut self, path: &[u8], mode: u32, pass: &SyncPass) -> Result<(), SyncStop> {
        let (Some(found), Some(there)) = (pass.scan.entries.get(path), pass.there.get(path)) else { return Ok(()) };
        let change = AttributeChange { mode: Some(mode), modified: Some(found.modified), ..AttributeChange::default() };
        let version = there.version();
        match self.link.ask(0, |id| FsRequest::SetVersionAttributes { id, path, version, change }.write())? {
            Ok(FsReply { entry: Some(entry), stamp, .. }) if is_same_file(&entry.attributes, there) => {
                let Some(base) = self.base.get(path).cloned() else { return Ok(()) };
                let host = entry.attributes;
                self.link.view.set_own(path, stamp, Some(entry));
                let state = match base.state {
                    PathState::File { content, .. } => PathState::File { content, mode },
                    state => state,
                };
                let local = self.with_mode(path, mode, found);
                self.agreed(path, Some(BaseEntry { state, host, local, ..base }));
            }
            Ok(_) => self.is_unsettled = true,
            Err(errno) => self.refuse(path, errno, pass),
        }
        Ok(())
    }

    /// Sets the mode that was agreed on here, if it is another one.
    fn with_mode(&self, path: &[u8], mode: u32, found: &FileAttributes) -> FileAttributes {
        if found.mode & 0o777 == mode {
            return *found;
        }
        self.local.set_attributes(path, mode, found.modified).unwrap_or(*found)
    }

    /// Sends what the host needs of a file, without waiting. `None` if there is nothing to wait for.
    fn begin_push<'a>(
        &mut self,
        (path, mode): (&'a Vec<u8>, u32),
        how: StagedWrite,
        pass: &SyncPass,
    ) -> Result<Option<PendingPush<'a>>, SyncStop> {
        let (Some(found), Some(expected)) = (pass.scan.entries.get(path), pass.local_chunks.get(path)) else {
            self.is_unsettled = true;
            return Ok(None);
        };
        let mut there = pass.there.get(path).copied();
        if how == StagedWrite::InPlace && there.is_some_and(|there| there.kind != FileKind::File) {
            if !self.clear_there(path, there)? {
                return Ok(None);
            }
            there = None;
        }
        let Ok(file) = self.local.open_file(path) else {
            self.is_unsettled = true;
            return Ok(None);
        };
        let content = ContentId::of(expected);
        // What is written in place can't be taken back.
        if how == StagedWrite::InPlace && self.read_chunks(path, found).ok().as_ref() != Some(expected) {
            self.is_unsettled = true;
            return Ok(None);
        }
        let to = self.link.new_handle();
        let (mut handles, mut requests) = (vec![to], Vec::new());
        let (written, skipped) = match &how {
            StagedWrite::Under(name) => (name, 0),
            StagedWrite::InPlace => (path, self.known_start(path, found.size)),
        };
        let flags = FsOpenFlags {
            exclusive: matches!(how, StagedWrite::Under(_)),
            truncate: how == StagedWrite::InPlace && skipped == 0,
            ..WRITE
        };
        let open = |id| FsRequest::Open { id, handle: to, path: written, flags, mode }.write();
        requests.push(self.link.send(0, open)?);
        if let StagedWrite::Under(name) = &how {
            self.link.staged.push(name.clone());
        }
        let from = match self.known_at_host(path, content, found.size, &how) {
            Some((source, known)) => {
                let handle = self.link.new_handle();
                let flags = FsOpenFlags { read: true, ..FsOpenFlags::default() };
                let open = |id| FsRequest::Open { id, handle, path: &source, flags, mode: 0 }.write();
                requests.push(self.link.send(0, open)?);
                handles.push(handle);
                Some((handle, known))
            }
            None => None,
        };
        self.link.handles.extend(&handles);
        let mut writer =
            PushWriter { link: &mut self.link, requests, to, from, new: (0, Vec::new()), known: (0, 0, 0) };
        let mut chunks = Vec::new();
        let mut text = (found.size <= MAX_TEXT).then(Vec::new);
        let mut loss = None;
        // A log that grows meanwhile has the same start.
        let read = each_chunk(file.take(found.size), |chunk, data| {
            chunks.push(chunk);
            if let Some(text) = &mut text {
                text.extend_from_slice(data);
            }
            let end = chunk.offset + u64::from(chunk.length);
            let known = usize::try_from(skipped.saturating_sub(chunk.offset)).unwrap_or(usize::MAX).min(data.len());
            if end <= skipped {
                return Ok(());
            }
            let start = chunk.offset + known as u64;
            writer.add(&Chunk { offset: start, ..chunk }, &data[known..]).map_err(|lost| {
                loss = Some(lost);
                std::io::Error::other("the connection is lost")
            })
        });
        if let Some(loss) = loss {
            return Err(loss.into());
        }
        writer.finish()?;
        let mut requests = writer.requests;
        let is_abandoned = read.is_err() || chunks != *expected;
        if !is_abandoned {
            let change =
                AttributeChange { mode: Some(mode), modified: Some(found.modified), ..AttributeChange::default() };
            let make = |id| FsRequest::SetHandleAttributes { id, handle: to, change }.write();
            requests.push(self.link.send(0, make)?);
        }
        for handle in &handles {
            let handle = *handle;
            let close = self.link.send(0, |id| FsRequest::Close { id, handle }.write())?;
            if matches!(how, StagedWrite::Under(_)) {
                requests.push(close);
            }
        }
        let bytes = found.size;
        Ok(Some(PendingPush { path, mode, how, there, requests, handles, content, chunks, text, bytes, is_abandoned }))
    }

    /// How much of a log the host has already: git only adds to it.
    fn known_start(&self, path: &[u8], size: u64) -> u64 {
        let Some(BaseEntry { state: PathState::File { content: FileContent::Known(id), .. }, .. }) =
            self.base.get(path)
        else {
            return 0;
        };
        let (Some(before), Ok(file)) = (self.texts.get(*id), self.local.open_file(path)) else { return 0 };
        let mut start = vec![0; before.len()];
        let is_start = before.len() as u64 <= size
            && std::os::unix::fs::FileExt::read_exact_at(&file, &mut start, 0).is_ok()
            && start == before;
        if is_start { before.len() as u64 } else { 0 }
    }

    /// A file of the host that has chunks of this content: its own last version, or another file with the same content.
    fn known_at_host(
        &self,
        path: &[u8],
        content: ContentId,
        size: u64,
        how: &StagedWrite,
    ) -> Option<(Vec<u8>, KnownChunks)> {
        // The host reads these in ways of its own.
        if size <= SMALL_FILE || *how == StagedWrite::InPlace || in_git(path).is_some() {
            return None;
        }
        let is_current = |path: &[u8], base: &BaseEntry| {
            !base.chunks.is_empty()
                && self.link.view.get(path).is_some_and(|entry| entry.attributes.is_same_content(&base.host))
        };
        let own = self.base.get_key_value(path).filter(|(path, base)| is_current(path, base));
        let same = || {
            let has_content = |base: &BaseEntry| matches!(&base.state, PathState::File { content: FileContent::Known(known), .. } if *known == content);
            self.base.iter().find(|(path, base)| has_content(base) && is_current(path, base))
        };
        let (source, base) = own.or_else(same)?;
        Some((source.clone(), base.chunks.iter().map(|chunk| (chunk.hash, *chunk)).collect()))
    }

    /// Waits until everything is written, and only then gives the files their names: what was written in part must not
    /// replace anything.
    fn finish_all(&mut self, pushes: Vec<PendingPush<'_>>, pass: &SyncPass) -> Result<(), SyncStop> {
        let mut written = Vec::new();
        for push in pushes {
            if let Some(reply) = self.finish_writes(&push, pass)? {
                written.push((push, reply));
            }
        }
        let mut placed = Vec::new();
        for (push, reply) in written {
            let StagedWrite::Under(name) = &push.how else {
                self.finish_push(push, reply, pass);
                continue;
            };
            let (path, mut there) = (push.path, push.there);
            if there.is_some_and(|there| there.kind != FileKind::File) {
                if !self.clear_there(path, there)? {
                    self.remove_staged(name)?;
                    continue;
                }
                there = None;
            }
            let id = match there.map(|there| there.version()) {
                Some(version) => {
                    self.link.send(0, |id| FsRequest::Replace { id, from: name, to: path, version }.write())?
                }
                None => {
                    self.link.send(0, |id| FsRequest::Rename { id, from: name, to: path, replace: false }.write())?
                }
            };
            placed.push((push, reply, id));
        }
        for (push, written, id) in placed {
            let StagedWrite::Under(name) = &push.how else { continue };
            match self.link.answer(id)? {
                Ok(reply) if is_same_version(&reply, &written) => {
                    self.link.staged.retain(|staged| staged != name);
                    self.finish_push(push, reply, pass);
                }
                Ok(_) => {
                    // Somebody has replaced it already.
                    self.link.staged.retain(|staged| staged != name);
                    self.is_unsettled = true;
                }
                Err(errno) => {
                    self.remove_staged(name)?;
                    self.refuse(push.path, errno, pass);
                }
            }
        }
        Ok(())
    }

    /// Waits for the writes of a file, and returns what the host said about it then. `None` if it isn't complete.
    fn finish_writes(&mut self, push: &PendingPush<'_>, pass: &SyncPass) -> Result<Option<FsReply>, SyncStop> {
        let (mut first_error, mut is_open, mut last) = (None, true, None);
        let mut was_disturbed = false;
        for (at, id) in push.requests.iter().enumerate() {
            match self.link.answer(*id)? {
                Ok(reply) if reply.entry.is_some() => {
                    was_disturbed |= was_changed_between(last.as_ref(), &reply);
                    last = Some(reply);
                }
                Ok(_) => {}
                Err(errno) => {
                    is_open &= at > 0;
                    first_error = first_error.or(Some(errno));
                }
            }
        }
        self.link.handles.retain(|handle| !push.handles.contains(handle));
        if first_error.is_none() && !push.is_abandoned {
            if was_disturbed && push.how == StagedWrite::InPlace {
                // Nobody knows what is in it now, so nothing is agreed on.
                self.is_unsettled = true;
                return Ok(None);
            }
            return Ok(last);
        }
        if let StagedWrite::Under(name) = &push.how {
            if is_open {
                self.remove_staged(name)?;
            }
            self.link.staged.retain(|staged| staged != name);
        }
        let Some(errno) = first_error.filter(|_| !push.is_abandoned) else {
            self.is_unsettled = true;
            return Ok(None);
        };
        let is_hidden = matches!(Errno::from_raw_os_error(errno), Errno::ACCESS | Errno::NOENT);
        if !is_open && is_hidden && in_git(push.path).is_none() && push.how != StagedWrite::InPlace {
            // A lease that shows only some names shows none for files that aren't complete.
            if let Some(again) = self.begin_push((push.path, push.mode), StagedWrite::InPlace, pass)? {
                self.finish_all(vec![again], pass)?;
            }
            return Ok(None);
        }
        self.refuse(push.path, errno, pass);
        Ok(None)
    }

    fn remove_staged(&mut self, name: &[u8]) -> Result<(), SyncStop> {
        let _ = self.link.ask(0, |id| FsRequest::RemoveFile { id, path: name }.write())?;
        self.link.staged.retain(|staged| staged != name);
        Ok(())
    }

    /// The host has the file, under its name.
    fn finish_push(&mut self, push: PendingPush<'_>, reply: FsReply, pass: &SyncPass) {
        let PendingPush { path, mode, content, chunks, text, .. } = push;
        let (FsReply { entry: Some(entry), stamp, .. }, Some(found)) = (reply, pass.scan.entries.get(path)) else {
            self.is_unsettled = true;
            return;
        };
        let host = entry.attributes;
        self.link.view.set_own(path, stamp, Some(entry));
        let is_unchanged = self.local.attributes(path).is_some_and(|now| is_same(found, &now));
        let local = if is_unchanged { self.with_mode(path, mode, found) } else { *found };
        if let Some(text) = text {
            self.texts.keep(content, &text);
        }
        let chunks = if found.size > SMALL_FILE { chunks } else { Vec::new() };
        let state = PathState::File { content: FileContent::Known(content), mode };
        self.agreed(path, Some(BaseEntry { state, host, local, chunks }));
    }
}

/// Whether what has the name now is the file that was written.
fn is_same_version(now: &FsReply, written: &FsReply) -> bool {
    now.entry.as_ref().zip(written.entry.as_ref()).is_some_and(|(now, written)| {
        let (now, written) = (&now.attributes, &written.attributes);
        is_same_file(now, written) && now.modified == written.modified
    })
}

/// Whether somebody on the host wrote to a file between two requests of ours.
fn was_changed_between(earlier: Option<&FsReply>, later: &FsReply) -> bool {
    let earlier = earlier.and_then(|reply| reply.entry.as_ref());
    earlier.zip(later.before.as_ref()).is_some_and(|(earlier, before)| !earlier.attributes.is_same_content(before))
}

fn is_same_file(one: &FsAttributes, other: &FsAttributes) -> bool {
    (one.kind, one.inode, one.size) == (other.kind, other.inode, other.size)
}

// === impl PushWriter ===

impl PushWriter<'_> {
    fn add(&mut self, chunk: &Chunk, data: &[u8]) -> Result<(), LinkLoss> {
        let known = self.from.as_ref().and_then(|(_, known)| known.get(&chunk.hash)).copied();
        let Some(known) = known else {
            self.send_known()?;
            if self.new.1.is_empty() {
                self.new.0 = chunk.offset;
            }
            self.new.1.extend_from_slice(data);
            return if self.new.1.len() >= MAX_WRITE { self.send_new() } else { Ok(()) };
        };
        self.send_new()?;
        let length = u64::from(known.length);
        let is_next = self.known.1 > 0
            && self.known.0 + self.known.1 == known.offset
            && self.known.2 + self.known.1 == chunk.offset
            && self.known.1 + length <= MAX_COPY;
        if is_next {
            self.known.1 += length;
            return Ok(());
        }
        self.send_known()?;
        self.known = (known.offset, length, chunk.offset);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LinkLoss> {
        self.send_new()?;
        self.send_known()
    }

    fn send_new(&mut self) -> Result<(), LinkLoss> {
        let (offset, data) = std::mem::take(&mut self.new);
        if data.is_empty() {
            return Ok(());
        }
        let handle = self.to;
        self.requests.push(self.link.send(0, |id| FsRequest::Write { id, handle, offset, data: &data }.write())?);
        Ok(())
    }

    fn send_known(&mut self) -> Result<(), LinkLoss> {
        let ((offset, length, to_offset), Some((from, _))) = (std::mem::take(&mut self.known), &self.from) else {
            return Ok(());
        };
        if length == 0 {
            return Ok(());
        }
        let (from, to) = (*from, self.to);
        let make = |id| FsRequest::Copy { id, from, offset, length, to, to_offset }.write();
        self.requests.push(self.link.send(0, make)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{export::FileTime, fs_wire::FsEntry};

    /// What a log in git's folder gets is written in place, where the host's git writes as well.
    #[test]
    fn a_write_of_the_host_between_two_of_ours_is_noticed() {
        let version = |seconds| {
            let time = FileTime { seconds, nanos: 0 };
            let (accessed, modified, changed) = (time, time, time);
            FsAttributes {
                kind: FileKind::File,
                mode: 0o644,
                links: 1,
                inode: 10,
                size: 8,
                accessed,
                modified,
                changed,
            }
        };
        let reply = |before: Option<i64>, after| FsReply {
            before: before.map(version),
            entry: Some(FsEntry { attributes: version(after), target: None }),
            ..FsReply::EMPTY
        };
        assert!(!was_changed_between(None, &reply(Some(1), 2)));
        assert!(!was_changed_between(Some(&reply(Some(1), 2)), &reply(Some(2), 3)));
        assert!(!was_changed_between(Some(&reply(Some(1), 2)), &reply(None, 3)));
        assert!(was_changed_between(Some(&reply(Some(1), 2)), &reply(Some(5), 6)));
    }
}
