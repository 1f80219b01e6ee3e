//! Brings both sides together: looks at what changed, lets the rules decide, and carries it out.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    time::{Duration, Instant},
};

use attache_protocol::wire::awcp::AccessMode;
use rustix::io::Errno;

use super::{
    base_texts::BaseTexts,
    host_link::{HostLink, LinkLoss},
    local_tree::{LocalScan, LocalTree, is_same},
    paths::{conflict_name, in_git, rank},
    rules::{FileContent, PathOutcome, PathState, ThreeStates, folders_above, settle},
};
use crate::{
    chunks::{Chunk, ContentId, chunks_of},
    export::{FileAttributes, FileKind},
    fs_wire::{FsAttributes, FsRequest},
};

pub(super) struct SyncEngine {
    pub(super) link: HostLink,
    pub(super) local: LocalTree,
    pub(super) base: BTreeMap<Vec<u8>, BaseEntry>,
    pub(super) texts: BaseTexts,
    pub(super) access_mode: AccessMode,
    /// Changes of the remote that the host doesn't have, with the reason.
    pub(super) lost: BTreeMap<Vec<u8>, String>,
    /// The remote's versions that have no place or another name, because the host's version was kept.
    pub(super) conflicts: BTreeMap<Vec<u8>, String>,
    /// What the host refused. It isn't sent again before it changes.
    refused: BTreeMap<Vec<u8>, Option<FileAttributes>>,
    /// Something changed while it was looked at.
    pub(super) is_unsettled: bool,
    /// So many passes ended so, one after another.
    pub(super) unsettled_passes: u32,
}

/// What both sides last agreed on.
#[derive(Debug, Clone)]
pub(super) struct BaseEntry {
    pub(super) state: PathState,
    pub(super) host: FsAttributes,
    pub(super) local: FileAttributes,
    /// Of a large file.
    pub(super) chunks: Vec<Chunk>,
}

/// One pass over what changed.
#[derive(Default)]
pub(super) struct SyncPass {
    pub(super) scan: LocalScan,
    pub(super) states: BTreeMap<Vec<u8>, ThreeStates>,
    pub(super) local_chunks: HashMap<Vec<u8>, Vec<Chunk>>,
    /// Files of which only the time is new.
    pub(super) touched: Vec<Vec<u8>>,
}

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncStop {
    #[error(transparent)]
    Link(#[from] LinkLoss),
    #[error("the copy can't be read or written: {0}")]
    Copy(#[from] io::Error),
}

/// Files up to this size are sent whole, so their chunks needn't be remembered.
pub(super) const SMALL_FILE: u64 = 48 << 10;
const BOTH: &str = "changed on both sides";

// === impl SyncEngine ===

impl SyncEngine {
    pub(super) fn new(link: HostLink, local: LocalTree, texts: BaseTexts, access_mode: AccessMode) -> Self {
        let (base, lost, refused) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let conflicts = BTreeMap::new();
        Self {
            link,
            local,
            base,
            texts,
            access_mode,
            lost,
            conflicts,
            refused,
            is_unsettled: false,
            unsettled_passes: 0,
        }
    }

    /// One pass. `is_unsettled` says afterwards whether another one is needed.
    pub(super) fn pass(&mut self) -> Result<(), SyncStop> {
        self.unsettled_passes = if self.is_unsettled { self.unsettled_passes.saturating_add(1) } else { 0 };
        self.is_unsettled = false;
        self.link.has_local_change = false;
        self.link.list_all()?;
        if self.access_mode == AccessMode::Rw {
            for path in self.link.view.take_leftovers() {
                let _ = self.link.ask(0, |id| FsRequest::RemoveFile { id, path: &path }.write())?;
            }
        }
        let scan = self.local.scan()?;
        let mut pass = self.compare(scan);
        let mut outcomes = settle(&pass.states);
        self.keep_both(&mut pass, &mut outcomes);
        let is_gone = |outcome: &PathOutcome| *outcome == PathOutcome::Agree(PathState::Absent);
        let gone: Vec<Vec<u8>> =
            outcomes.iter().filter(|(_, outcome)| is_gone(outcome)).map(|(path, _)| path.clone()).collect();
        outcomes.retain(|_, outcome| !is_gone(outcome));
        // The innermost first.
        for path in gone.iter().rev() {
            self.remove_here(path, &pass);
        }
        let is_in_the_way = |path: &Vec<u8>| folders_above(path).any(|folder| outcomes.contains_key(folder));
        let (early, late): (Vec<_>, Vec<_>) = gone.into_iter().partition(is_in_the_way);
        self.remove_there(&early, &pass)?;
        for (path, outcome) in &outcomes {
            match outcome {
                PathOutcome::Agree(PathState::Folder) => self.agree_on_folder(path, &pass)?,
                PathOutcome::Agree(PathState::Link(target)) => self.agree_on_link(path, target, &pass)?,
                _ => {}
            }
        }
        let is_pulled = |(path, outcome): &(&Vec<u8>, &PathOutcome)| {
            let PathOutcome::Agree(PathState::File { content, .. }) = outcome else { return false };
            matches!(content, FileContent::Unfetched)
                || !matches!(&pass.states[*path].local, PathState::File { content: ours, .. } if ours == content)
        };
        let (pulled, rest): (Vec<_>, Vec<_>) = outcomes.iter().partition(is_pulled);
        self.pull_files(&pulled, &pass)?;
        let mut pushed = Vec::new();
        for (path, outcome) in rest {
            match outcome {
                PathOutcome::Merge { mode } => self.merge_file(path, *mode, &pass)?,
                PathOutcome::Agree(PathState::File { mode, .. }) => pushed.push((path, *mode)),
                _ => {}
            }
        }
        pushed.sort_by_key(|(path, _)| rank(path));
        self.push_files(&pushed, &pass)?;
        self.push_times(&pass)?;
        self.remove_there(&late, &pass)
    }

    /// The three states of every path that changed on either side.
    fn compare(&mut self, scan: LocalScan) -> SyncPass {
        let mut changed: BTreeSet<Vec<u8>> = self.link.view.take_changed();
        let is_new = |(path, now): &(&Vec<u8>, &FileAttributes)| {
            self.base.get(*path).is_none_or(|base| !is_same(&base.local, now))
        };
        changed.extend(scan.entries.iter().filter(is_new).map(|(path, _)| path.clone()));
        changed.extend(self.base.keys().filter(|path| !scan.entries.contains_key(*path)).cloned());
        changed.extend(self.lost.keys().cloned());
        let mut pass = SyncPass { scan, ..SyncPass::default() };
        for path in changed {
            if pass.scan.unreadable.iter().any(|folder| is_below(&path, folder)) {
                continue;
            }
            let Some(states) = self.states(&path, &mut pass) else { continue };
            if states.local == states.base && states.host == states.base {
                self.agree_again(path, &mut pass);
                continue;
            }
            pass.states.insert(path, states);
        }
        pass
    }

    fn states(&mut self, path: &[u8], pass: &mut SyncPass) -> Option<ThreeStates> {
        let known = self.base.get(path);
        let base = known.map_or(PathState::Absent, |known| known.state.clone());
        let host = match self.link.view.get(path) {
            None => PathState::Absent,
            Some(entry) => match entry.attributes.kind {
                FileKind::Folder => PathState::Folder,
                FileKind::Link => PathState::Link(entry.target.clone().unwrap_or_default()),
                FileKind::File | FileKind::Special => match known {
                    Some(known) if known.host.is_same_content(&entry.attributes) => base.clone(),
                    _ => PathState::File { content: FileContent::Unfetched, mode: entry.attributes.mode & 0o777 },
                },
            },
        };
        let now = pass.scan.entries.get(path);
        let local = match now {
            None => PathState::Absent,
            Some(now) => match now.kind {
                FileKind::Folder => PathState::Folder,
                _ if known.is_some_and(|known| is_same(&known.local, now)) => base.clone(),
                FileKind::Link => PathState::Link(self.local.read_link(path).ok()?),
                FileKind::File | FileKind::Special => {
                    let chunks = match self.read_chunks(path, now) {
                        Ok(chunks) => chunks,
                        Err(error) => {
                            self.look_again(path);
                            self.lost.insert(path.to_vec(), error.to_string());
                            return None;
                        }
                    };
                    let content = FileContent::Known(ContentId::of(&chunks));
                    pass.local_chunks.insert(path.to_vec(), chunks);
                    PathState::File { content, mode: now.mode & 0o777 }
                }
            },
        };
        if local != base && self.access_mode == AccessMode::Ro {
            self.lost.insert(path.to_vec(), "the folder is shared read-only".to_owned());
            return (host != base).then(|| ThreeStates { local: base.clone(), base, host });
        }
        let is_refused = self.refused.get(path).is_some_and(|refused| match (refused, now) {
            (None, None) => true,
            (Some(refused), Some(now)) => is_same(refused, now),
            _ => false,
        });
        if is_refused && host == base {
            return None;
        }
        Some(ThreeStates { base, local, host })
    }

    pub(super) fn read_chunks(&self, path: &[u8], now: &FileAttributes) -> io::Result<Vec<Chunk>> {
        let chunks = chunks_of(self.local.open_file(path)?)?;
        if self.local.attributes(path).is_some_and(|after| is_same(now, &after)) {
            Ok(chunks)
        } else {
            Err(io::Error::other("it is being written"))
        }
    }

    /// Only times or numbers have changed, if anything.
    fn agree_again(&mut self, path: Vec<u8>, pass: &mut SyncPass) {
        self.lost.remove(&path);
        self.refused.remove(&path);
        let (Some(base), Some(now)) = (self.base.get_mut(&path), pass.scan.entries.get(&path)) else { return };
        let is_touched = now.kind == FileKind::File && now.modified != base.local.modified;
        if is_touched && self.access_mode == AccessMode::Rw {
            pass.touched.push(path);
            return;
        }
        base.local = *now;
        if let Some(entry) = self.link.view.get(&path) {
            base.host = entry.attributes;
        }
    }

    /// The path is looked at again in the next pass.
    pub(super) fn look_again(&mut self, path: &[u8]) {
        self.link.view.mark(path);
        self.is_unsettled = true;
    }

    /// The host didn't do what it was asked to.
    pub(super) fn refuse(&mut self, path: &[u8], errno: i32, pass: &SyncPass) {
        let reason = io::Error::from_raw_os_error(errno).to_string();
        self.lost.insert(path.to_vec(), reason);
        match Errno::from_raw_os_error(errno) {
            // It changed meanwhile, or somebody else is at it.
            Errno::STALE | Errno::AGAIN | Errno::EXIST | Errno::NFILE | Errno::INTR => self.look_again(path),
            _ => {
                self.refused.insert(path.to_vec(), pass.scan.entries.get(path).copied());
            }
        }
    }

    /// Both sides have the same.
    pub(super) fn agreed(&mut self, path: &[u8], entry: Option<BaseEntry>) {
        self.lost.remove(path);
        self.refused.remove(path);
        match entry {
            Some(entry) => self.base.insert(path.to_vec(), entry),
            None => self.base.remove(path),
        };
    }

    /// Conflicts that no content can solve: the remote's version gets another name, and is new there.
    fn keep_both(&mut self, pass: &mut SyncPass, outcomes: &mut BTreeMap<Vec<u8>, PathOutcome>) {
        let conflicts: Vec<Vec<u8>> = outcomes
            .iter()
            .filter(|(_, outcome)| **outcome == PathOutcome::Conflict)
            .map(|(path, _)| path.clone())
            .collect();
        for path in conflicts {
            if !outcomes.contains_key(&path) {
                continue;
            }
            self.put_aside(&path);
            let known = self.base.keys().chain(pass.states.keys());
            let below: Vec<Vec<u8>> = known.filter(|known| is_below(known, &path)).cloned().collect();
            for known in below {
                self.base.remove(&known);
                self.link.view.mark(&known);
            }
            self.look_again(&path);
            outcomes.retain(|known, _| !is_below(known, &path));
            pass.states.retain(|known, _| !is_below(known, &path));
        }
    }

    /// Renames the remote's version of something. Returns whether its name is free now.
    pub(super) fn put_aside(&mut self, path: &[u8]) -> bool {
        let Some(found) = self.local.attributes(path) else { return true };
        if in_git(path).is_some() {
            // The host takes no other names there.
            self.conflicts.insert(path.to_vec(), format!("{BOTH}; the host's version was kept"));
            return self.local.remove(path, found.kind).is_ok();
        }
        let is_taken = |name: &[u8]| self.local.attributes(name).is_some() || self.link.view.get(name).is_some();
        let aside = conflict_name(path, is_taken);
        let is_done = self.local.rename(path, &aside).is_ok();
        if is_done {
            let reason = format!("{BOTH}; this version is in {}", crate::export::show(&aside));
            self.conflicts.insert(path.to_vec(), reason);
            self.is_unsettled = true;
        }
        is_done
    }

    fn remove_here(&mut self, path: &[u8], pass: &SyncPass) {
        let Some(found) = pass.scan.entries.get(path) else { return };
        let is_unchanged = self.local.attributes(path).is_some_and(|now| is_same(found, &now));
        match if is_unchanged { self.local.remove(path, found.kind) } else { Err(Errno::STALE) } {
            Ok(()) => self.agreed(path, None),
            // Somebody has put something into it.
            Err(_) => self.look_again(path),
        }
    }

    fn remove_there(&mut self, paths: &[Vec<u8>], pass: &SyncPass) -> Result<(), SyncStop> {
        let mut asked = Vec::new();
        for path in paths.iter().rev() {
            let Some(entry) = self.link.view.get(path).cloned() else {
                if !pass.scan.entries.contains_key(path) {
                    self.agreed(path, None);
                }
                continue;
            };
            let version = entry.attributes.version();
            let id = match entry.attributes.kind {
                FileKind::Folder => self.link.send(0, |id| FsRequest::RemoveDir { id, path }.write())?,
                _ => self.link.send(0, |id| FsRequest::RemoveVersion { id, path, version }.write())?,
            };
            asked.push((path, entry.attributes, id));
        }
        for (path, attributes, id) in asked {
            match self.link.answer(id)?.map_err(Errno::from_raw_os_error) {
                Ok(reply) => {
                    self.link.view.set(path.clone(), reply.stamp, None);
                    self.agreed(path, None);
                }
                Err(Errno::NOENT) => self.agreed(path, None),
                // What the lease doesn't show is in it: the folder stays, here too.
                Err(Errno::NOTEMPTY) if !self.link.view.has_entries(path) => {
                    if self.local.make_dir(path, attributes.mode).is_ok() {
                        self.agree_on_entry(path, attributes, PathState::Folder, None);
                    }
                }
                Err(Errno::NOTEMPTY) => self.look_again(path),
                Err(errno) => self.refuse(path, errno.raw_os_error(), pass),
            }
        }
        Ok(())
    }

    fn agree_on_folder(&mut self, path: &[u8], pass: &SyncPass) -> Result<(), SyncStop> {
        let here = pass.scan.entries.get(path);
        let there = self.link.view.get(path).map(|entry| entry.attributes);
        match here {
            Some(found) if found.is_folder() => {}
            found => {
                if let Some(found) = found {
                    let _ = self.local.remove(path, found.kind);
                }
                if self.local.make_dir(path, there.map_or(0o755, |there| there.mode)).is_err() {
                    self.look_again(path);
                    return Ok(());
                }
            }
        }
        let attributes = match there {
            Some(there) if there.kind == FileKind::Folder => there,
            there => {
                let mode = here.map_or(0o755, |here| here.mode & 0o777);
                if !self.clear_there(path, there)? {
                    return Ok(());
                }
                match self.link.ask(0, |id| FsRequest::MakeDir { id, path, mode }.write())? {
                    Ok(reply) => {
                        let Some(entry) = reply.entry else { return Ok(()) };
                        let attributes = entry.attributes;
                        self.link.view.set(path.to_vec(), reply.stamp, Some(entry));
                        attributes
                    }
                    Err(errno) => {
                        self.refuse(path, errno, pass);
                        // Walls leave empty folders where git must find nothing. What is in others is named.
                        if in_git(path).is_some() {
                            self.lost.remove(path);
                        }
                        return Ok(());
                    }
                }
            }
        };
        self.agree_on_entry(path, attributes, PathState::Folder, here.filter(|here| here.is_folder()));
        Ok(())
    }

    /// Both sides have the same folder or link. Somebody may have removed it here since it was found: that is a change, which
    /// the next pass finds.
    fn agree_on_entry(&mut self, path: &[u8], host: FsAttributes, state: PathState, found: Option<&FileAttributes>) {
        let local = found.copied().or_else(|| self.local.attributes(path)).or_else(|| self.local.attributes(b""));
        let Some(local) = local else { return };
        self.agreed(path, Some(BaseEntry { state, host, local, chunks: Vec::new() }));
    }

    /// Removes what has to make room for something of another kind. `false` if it has changed.
    pub(super) fn clear_there(&mut self, path: &[u8], there: Option<FsAttributes>) -> Result<bool, SyncStop> {
        let Some(there) = there else { return Ok(true) };
        let version = there.version();
        let answer = match there.kind {
            FileKind::Folder => self.link.ask(0, |id| FsRequest::RemoveDir { id, path }.write())?,
            _ => self.link.ask(0, |id| FsRequest::RemoveVersion { id, path, version }.write())?,
        };
        match answer {
            Ok(reply) => self.link.view.set(path.to_vec(), reply.stamp, None),
            Err(_) => {
                self.look_again(path);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn agree_on_link(&mut self, path: &[u8], target: &[u8], pass: &SyncPass) -> Result<(), SyncStop> {
        let states = &pass.states[path];
        let wanted = PathState::Link(target.to_vec());
        let mut host = self.link.view.get(path).map(|entry| entry.attributes);
        if states.local != wanted {
            if let Some(found) = pass.scan.entries.get(path) {
                let _ = self.local.remove(path, found.kind);
            }
            if self.local.symlink(path, target).is_err() {
                self.look_again(path);
                return Ok(());
            }
        }
        if states.host != wanted {
            if !self.clear_there(path, host)? {
                return Ok(());
            }
            match self.link.ask(0, |id| FsRequest::Symlink { id, path, target }.write())? {
                Ok(reply) => {
                    host = reply.entry.as_ref().map(|entry| entry.attributes);
                    self.link.view.set(path.to_vec(), reply.stamp, reply.entry);
                }
                Err(errno) => {
                    self.refuse(path, errno, pass);
                    return Ok(());
                }
            }
        }
        if let Some(host) = host {
            let found = pass.scan.entries.get(path).filter(|_| states.local == wanted);
            self.agree_on_entry(path, host, wanted, found);
        }
        Ok(())
    }

    /// Passes until nothing is left to do, or the time is over.
    pub(super) fn flush(&mut self, until: Instant) -> Result<(), SyncStop> {
        loop {
            self.pass()?;
            if !self.is_unsettled || Instant::now() > until {
                return Ok(());
            }
            self.link.step(Duration::from_millis(20))?;
        }
    }

    /// Names what the host doesn't have.
    pub(super) fn name_unsent(&mut self, reason: &str) {
        let Ok(scan) = self.local.scan() else { return };
        let is_sent = |(path, now): &(&Vec<u8>, &FileAttributes)| {
            self.refused.contains_key(*path) || self.base.get(*path).is_some_and(|base| is_same(&base.local, now))
        };
        let unsent: Vec<Vec<u8>> =
            scan.entries.iter().filter(|entry| !is_sent(entry)).map(|(path, _)| path.clone()).collect();
        let gone = self.base.keys().filter(|path| !scan.entries.contains_key(*path)).cloned();
        for path in unsent.into_iter().chain(gone.collect::<Vec<_>>()) {
            self.lost.entry(path).or_insert_with(|| reason.to_owned());
        }
    }
}

/// Whether a path is this one, or below it.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
