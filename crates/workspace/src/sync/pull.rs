//! Files of the host that the copy gets, and files that both sides edited.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
};

use rustix::io::Errno;

use super::{
    base_texts::MAX_TEXT,
    engine::{BaseEntry, SMALL_FILE, SyncEngine, SyncPass, SyncStop},
    host_link::HostAnswer,
    local_tree::StagedFile,
    rules::{FileContent, PathOutcome, PathState},
};
use crate::{
    chunks::{Chunk, ContentId, chunks_of},
    export::{FileAttributes, FileKind, FileTime},
    fs_wire::{FsAttributes, FsOpenFlags, FsReply, FsRequest, MAX_DATA},
    merge::merge,
};

/// The host's version of a file, complete.
struct FetchedFile {
    attributes: FsAttributes,
    staged: StagedFile,
    chunks: Vec<Chunk>,
}

/// How many files are requested ahead of the one being received.
const MAX_AHEAD: usize = 256;
const MAX_AHEAD_BYTES: u64 = 8 << 20;
const READ: FsOpenFlags =
    FsOpenFlags { read: true, write: false, append: false, truncate: false, create: false, exclusive: false };

impl SyncEngine {
    /// Gets files that changed on the host, or are new there.
    pub(super) fn pull_files(&mut self, pulled: &[(&Vec<u8>, &PathOutcome)], pass: &SyncPass) -> Result<(), SyncStop> {
        let mut ahead: VecDeque<(&Vec<u8>, u32, u32, u64)> = VecDeque::new();
        let mut bytes = 0;
        for (path, outcome) in pulled {
            let PathOutcome::Agree(PathState::File { mode, .. }) = outcome else { continue };
            let Some(size) = self.link.view.get(path).map(|entry| entry.attributes.size) else {
                self.is_unsettled = true;
                continue;
            };
            let has_chunks = self.base.get(*path).is_some_and(|base| !base.chunks.is_empty());
            if size > MAX_DATA as u64 || (has_chunks && size > SMALL_FILE) {
                if let Some(fetched) = self.fetch_parts(path, size, pass)? {
                    self.finish_pull(path, *mode, &fetched, pass.scan.entries.get(*path))?;
                }
                continue;
            }
            while ahead.len() >= MAX_AHEAD || (bytes > MAX_AHEAD_BYTES && !ahead.is_empty()) {
                bytes -= self.finish_ahead(&mut ahead, pass)?;
            }
            let expected = usize::try_from(size).unwrap_or(MAX_DATA);
            let id = self.link.send(expected, |id| FsRequest::Fetch { id, path }.write())?;
            ahead.push_back((path, *mode, id, size));
            bytes += size;
        }
        while !ahead.is_empty() {
            self.finish_ahead(&mut ahead, pass)?;
        }
        Ok(())
    }

    fn finish_ahead(
        &mut self,
        ahead: &mut VecDeque<(&Vec<u8>, u32, u32, u64)>,
        pass: &SyncPass,
    ) -> Result<u64, SyncStop> {
        let Some((path, mode, id, size)) = ahead.pop_front() else { return Ok(0) };
        let answer = self.link.answer(id)?;
        if let Some(fetched) = self.fetched(path, answer, pass)? {
            self.finish_pull(path, mode, &fetched, pass.scan.entries.get(path))?;
        }
        Ok(size)
    }

    /// The answer to a request for a whole file.
    fn fetched(&mut self, path: &[u8], answer: HostAnswer, pass: &SyncPass) -> Result<Option<FetchedFile>, SyncStop> {
        let (data, attributes) = match answer {
            Ok(FsReply { data, entry: Some(entry), .. }) => (data, entry.attributes),
            answer => {
                self.not_fetched(path, answer.err(), pass);
                return Ok(None);
            }
        };
        let staged = self.local.stage_data(&data)?;
        Ok(Some(FetchedFile { attributes, staged, chunks: chunks_of(&data[..])? }))
    }

    /// The host's version can't be had now, or not at all.
    fn not_fetched(&mut self, path: &[u8], errno: Option<i32>, pass: &SyncPass) {
        match errno.map(Errno::from_raw_os_error) {
            Some(Errno::ACCESS) => {
                if let Some(there) = pass.there.get(path) {
                    self.unreadable.insert(path.to_vec(), there.version());
                }
                if pass.local_chunks.contains_key(path) {
                    self.lost.insert(path.to_vec(), "the host has a file there that can't be read".to_owned());
                }
            }
            Some(Errno::NOENT) => {
                self.link.view.doubt(path);
                self.is_unsettled = true;
            }
            _ => self.is_unsettled = true,
        }
    }

    /// Gets a large file: of what is known here, only the places are asked for.
    fn fetch_parts(&mut self, path: &[u8], size: u64, pass: &SyncPass) -> Result<Option<FetchedFile>, SyncStop> {
        let known = pass.local_chunks.get(path).or_else(|| self.base.get(path).map(|base| &base.chunks));
        let known: HashMap<[u8; 32], Chunk> = known.into_iter().flatten().map(|chunk| (chunk.hash, *chunk)).collect();
        let listed = if known.is_empty() {
            None
        } else {
            match self.link.ask(MAX_DATA, |id| FsRequest::Chunks { id, path }.write())? {
                Ok(FsReply { data, entry: Some(entry), .. }) => {
                    let whole = |chunks: &Vec<Chunk>| length_of(chunks) == entry.attributes.size;
                    Chunk::read_all(&data).filter(whole).map(|chunks| (chunks, entry.attributes.version()))
                }
                _ => None,
            }
        };
        // The host says how large it is, and may say anything.
        let length = listed.as_ref().map_or(size, |(chunks, _)| length_of(chunks));
        self.local.check_space(length)?;
        let mut staged = self.local.stage()?;
        // The parts to ask for: everything, if nothing is known.
        let mut parts = Vec::new();
        let whole = if listed.is_none() { 0..size } else { 0..0 };
        let whole = whole.step_by(MAX_DATA).map(|offset| (offset, (size - offset).min(MAX_DATA as u64)));
        match &listed {
            None => {}
            Some((chunks, _)) => {
                let here = self.local.open_file(path).ok();
                for chunk in chunks {
                    let copied = here.as_ref().zip(known.get(&chunk.hash)).and_then(|(here, at)| copy_of(here, at));
                    match copied {
                        Some(data) => staged.file.write_all_at(&data, chunk.offset)?,
                        None => parts.push((chunk.offset, u64::from(chunk.length))),
                    }
                }
            }
        }
        let handle = self.link.new_handle();
        self.link.handles.push(handle);
        let open = self.link.send(0, |id| FsRequest::Open { id, handle, path, flags: READ, mode: 0 }.write())?;
        let before = self.link.send(0, |id| FsRequest::HandleStat { id, handle }.write())?;
        let mut is_complete = true;
        let mut asked = VecDeque::new();
        let mut parts = parts.into_iter().chain(whole).peekable();
        while parts.peek().is_some() || !asked.is_empty() {
            if asked.len() < 8
                && let Some((offset, length)) = parts.next()
            {
                let length = u32::try_from(length).unwrap_or(u32::MAX);
                let make = |id| FsRequest::Read { id, handle, offset, length }.write();
                asked.push_back((self.link.send(length as usize, make)?, offset, length));
                continue;
            }
            let Some((id, offset, length)) = asked.pop_front() else { break };
            match self.link.answer(id)? {
                Ok(reply) if reply.data.len() == length as usize => staged.file.write_all_at(&reply.data, offset)?,
                _ => is_complete = false,
            }
        }
        let after = self.link.send(0, |id| FsRequest::HandleStat { id, handle }.write())?;
        let close = self.link.send(0, |id| FsRequest::Close { id, handle }.write())?;
        let mut attributes = [None, None];
        for (at, id) in [before, after].into_iter().enumerate() {
            attributes[at] = self.link.answer(id)?.ok().and_then(|reply| reply.entry).map(|entry| entry.attributes);
        }
        let (opened, _) = (self.link.answer(open)?, self.link.answer(close)?);
        self.link.handles.retain(|open| *open != handle);
        let is_version = |version| listed.as_ref().is_none_or(|(_, listed)| *listed == version);
        match attributes {
            [Some(before), Some(after)]
                if is_complete
                    && before.is_same_content(&after)
                    && after.size == length
                    && is_version(after.version()) =>
            {
                staged.file.set_len(length)?;
                staged.file.seek(SeekFrom::Start(0))?;
                let chunks = chunks_of(&mut staged.file)?;
                // A chunk that was copied here may have changed meanwhile.
                if listed.as_ref().is_some_and(|(expected, _)| *expected != chunks) {
                    self.is_unsettled = true;
                    return Ok(None);
                }
                Ok(Some(FetchedFile { attributes: after, staged, chunks }))
            }
            _ => {
                self.not_fetched(path, opened.err(), pass);
                Ok(None)
            }
        }
    }

    /// The copy gets the host's version, in place of what was found.
    fn finish_pull(
        &mut self,
        path: &[u8],
        mode: u32,
        fetched: &FetchedFile,
        found: Option<&FileAttributes>,
    ) -> Result<(), SyncStop> {
        let FetchedFile { attributes, staged, chunks } = fetched;
        let id = ContentId::of(chunks);
        let content = FileContent::Known(id);
        let other = found.filter(|found| found.kind != FileKind::File);
        self.clear_here(path, other);
        let theirs = attributes.mode & 0o777;
        let put = self.local.put(path, staged, (theirs, attributes.modified), found.filter(|_| other.is_none()));
        let local = match put {
            Ok(local) => local,
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => return Err(error.into()),
            Err(_) => {
                self.is_unsettled = true;
                return Ok(());
            }
        };
        self.keep_text(id, &staged.file, attributes.size);
        let chunks = if attributes.size > SMALL_FILE { chunks.clone() } else { Vec::new() };
        let state = PathState::File { content, mode: theirs };
        self.agreed(path, Some(BaseEntry { state, host: *attributes, local, chunks }));
        if mode != theirs {
            // As if the remote had changed it in the host's version, which is what the next pass finds.
            let _ = self.local.set_attributes(path, mode, attributes.modified);
            self.is_unsettled = true;
        }
        Ok(())
    }

    fn keep_text(&mut self, id: ContentId, file: &File, size: u64) {
        if size <= MAX_TEXT
            && let Some(data) = read_all(file, size)
        {
            self.texts.keep(id, &data);
        }
    }

    /// Both sides edited a file: what can't be merged stays as the host has it, and the remote's version gets another name.
    pub(super) fn merge_file(&mut self, path: &[u8], mode: u32, pass: &SyncPass) -> Result<(), SyncStop> {
        let Some(size) = self.link.view.get(path).map(|entry| entry.attributes.size) else {
            self.is_unsettled = true;
            return Ok(());
        };
        let fetched = if size > SMALL_FILE {
            self.fetch_parts(path, size, pass)?
        } else {
            let answer = self.link.ask(SMALL_FILE as usize, |id| FsRequest::Fetch { id, path }.write())?;
            self.fetched(path, answer, pass)?
        };
        let Some(fetched) = fetched else { return Ok(()) };
        let (states, theirs) = (&pass.states[path], FileContent::Known(ContentId::of(&fetched.chunks)));
        if matches!(&states.local, PathState::File { content, .. } if *content == theirs) {
            return self.finish_pull(path, mode, &fetched, pass.scan.entries.get(path));
        }
        let Some(found) = pass.scan.entries.get(path) else { return Ok(()) };
        if let Some(merged) = self.merged(path, states, &fetched, found.size) {
            let staged = self.local.stage_data(&merged)?;
            let modified = found.modified.max(fetched.attributes.modified);
            let modified = FileTime { seconds: modified.seconds + 1, ..modified };
            if self.local.put(path, &staged, (mode, modified), Some(found)).is_err() {
                self.is_unsettled = true;
                return Ok(());
            }
            // As if the remote had edited the host's version, which is what the next pass finds.
            let FetchedFile { attributes, staged, chunks } = &fetched;
            self.keep_text(ContentId::of(chunks), &staged.file, attributes.size);
            let state = PathState::File { content: theirs, mode: attributes.mode & 0o777 };
            let chunks = if attributes.size > SMALL_FILE { chunks.clone() } else { Vec::new() };
            self.agreed(path, Some(BaseEntry { state, host: *attributes, local: *found, chunks }));
            self.is_unsettled = true;
            return Ok(());
        }
        if self.put_aside(path) {
            return self.finish_pull(path, fetched.attributes.mode & 0o777, &fetched, None);
        }
        self.is_unsettled = true;
        Ok(())
    }

    fn merged(
        &self,
        path: &[u8],
        states: &super::rules::PathStates,
        fetched: &FetchedFile,
        size: u64,
    ) -> Option<Vec<u8>> {
        let PathState::File { content: FileContent::Known(base), .. } = states.base else { return None };
        if super::paths::in_git(path).is_some() || size.max(fetched.attributes.size) > MAX_TEXT {
            return None;
        }
        let base = self.texts.get(base)?;
        let ours = read_all(&self.local.open_file(path).ok()?, size)?;
        merge(&base, &ours, &read_all(&fetched.staged.file, fetched.attributes.size)?)
    }
}

fn length_of(chunks: &[Chunk]) -> u64 {
    chunks.iter().fold(0, |sum: u64, chunk| sum.saturating_add(u64::from(chunk.length)))
}

/// The chunk at a place, if it is still there.
fn copy_of(file: &File, at: &Chunk) -> Option<Vec<u8>> {
    let mut data = vec![0; at.length as usize];
    file.read_exact_at(&mut data, at.offset).ok()?;
    Some(data)
}

fn read_all(file: &File, size: u64) -> Option<Vec<u8>> {
    let mut data = vec![0; usize::try_from(size).ok()?];
    file.read_exact_at(&mut data, 0).ok()?;
    Some(data)
}
