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
    rules::{FileContent, PathOutcome, PathState, PathStates, folders_above, settle},
};
use crate::{
    chunks::{Chunk, ContentId, each_chunk},
    export::{FileAttributes, FileKind},
    fs_wire::{FsAttributes, FsEntry, FsReply, FsRequest, FsVersion},
    mount::attache_fs::FLUSH_TIMEOUT,
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
    refused: BTreeMap<Vec<u8>, RefusedChange>,
    /// Files of the host that can't be read here. They aren't requested again until they change.
    pub(super) unreadable: BTreeMap<Vec<u8>, FsVersion>,
    /// Something changed while it was looked at.
    pub(super) is_unsettled: bool,
    /// How many passes in a row ended this way.
    pub(super) unsettled_passes: u32,
    /// How often both sides came to agree on something.
    agreements: u64,
    /// Large files wait for the next pass.
    has_deferred: bool,
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

/// A change that the host didn't accept, and what was here then.
#[derive(Debug, Clone, Copy)]
struct RefusedChange {
    found: Option<FileAttributes>,
    /// Another change of the host can be the reason, so it is tried again after the next one.
    may_pass: bool,
}

/// One pass over what changed.
#[derive(Default)]
pub(super) struct SyncPass {
    pub(super) scan: LocalScan,
    pub(super) states: BTreeMap<Vec<u8>, PathStates>,
    /// What the host has at these paths. What it has by now may be another version, which hasn't been checked.
    pub(super) there: HashMap<Vec<u8>, FsAttributes>,
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
/// Larger ones wait until what is smaller has been sent: reading one can take longer than everything else.
const LARGE_FILE: u64 = 64 << 20;
const BOTH: &str = "changed on both sides";

// === impl SyncEngine ===

impl SyncEngine {
    pub(super) fn new(link: HostLink, local: LocalTree, texts: BaseTexts, access_mode: AccessMode) -> Self {
        Self {
            link,
            local,
            base: BTreeMap::new(),
            texts,
            access_mode,
            lost: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            refused: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            is_unsettled: false,
            unsettled_passes: 0,
            agreements: 0,
            has_deferred: false,
        }
    }

    /// One pass. `is_unsettled` says afterwards whether another one is needed.
    pub(super) fn pass(&mut self) -> Result<(), SyncStop> {
        self.unsettled_passes = if self.is_unsettled { self.unsettled_passes.saturating_add(1) } else { 0 };
        self.is_unsettled = false;
        self.link.has_local_change = false;
        if self.access_mode == AccessMode::Rw {
            for path in self.link.view.take_leftovers() {
                let _ = self.link.ask(0, |id| FsRequest::RemoveFile { id, path: &path }.write())?;
            }
        }
        let scan = self.local.scan()?;
        self.link.list_all()?;
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
        let size = |path: &Vec<u8>| pass.scan.entries.get(path).map_or(0, |found| found.size);
        pushed.sort_by_key(|(path, _)| (rank(path), size(path)));
        self.push_files(&pushed, &pass)?;
        self.push_times(&pass)?;
        self.remove_there(&late, &pass)
    }

    /// The three states of every path that changed on either side.
    fn compare(&mut self, scan: LocalScan) -> SyncPass {
        if self.link.view.take_news() {
            self.refused.retain(|_, refused| !refused.may_pass);
        }
        let mut changed = self.changed_there();
        let is_new = |(path, now): &(&Vec<u8>, &FileAttributes)| {
            self.base.get(*path).is_none_or(|base| !is_same(&base.local, now))
        };
        changed.extend(scan.entries.iter().filter(is_new).map(|(path, _)| path.clone()));
        changed.extend(self.base.keys().filter(|path| !scan.entries.contains_key(*path)).cloned());
        changed.extend(self.lost.keys().cloned());
        let mut pass = SyncPass { scan, ..SyncPass::default() };
        self.defer_large(&mut changed, &pass.scan);
        for path in changed {
            if pass.scan.unreadable.iter().any(|folder| is_below(&path, folder)) {
                continue;
            }
            let Some(states) = self.states(&path, &mut pass) else { continue };
            if let Some(entry) = self.link.view.get(&path) {
                pass.there.insert(path.clone(), entry.attributes);
            }
            if states.local == states.base && states.host == states.base {
                self.agree_again(path, &mut pass);
                continue;
            }
            pass.states.insert(path, states);
        }
        pass
    }

    /// Every other pass leaves new large files to the next one, if there is anything else to do.
    fn defer_large(&mut self, changed: &mut BTreeSet<Vec<u8>>, scan: &LocalScan) {
        let is_large = |path: &Vec<u8>| {
            !self.base.contains_key(path)
                && self.link.view.get(path).is_none()
                && scan.entries.get(path).is_some_and(|found| found.kind == FileKind::File && found.size > LARGE_FILE)
        };
        let large = changed.iter().filter(|path| is_large(path)).count();
        self.has_deferred = !self.has_deferred && large > 0 && large < changed.len();
        if self.has_deferred {
            changed.retain(|path| !is_large(path));
            self.is_unsettled = true;
        }
    }

    /// The paths where the host has something else than both sides agreed on.
    fn changed_there(&self) -> BTreeSet<Vec<u8>> {
        let is_news = |(path, entry): &(&Vec<u8>, &FsEntry)| {
            let is_known = match self.base.get(*path) {
                Some(base) if entry.attributes.kind == FileKind::Folder => base.state == PathState::Folder,
                Some(base) => base.host.is_same_content(&entry.attributes) && base.host.mode == entry.attributes.mode,
                None => false,
            };
            !is_known && self.unreadable.get(*path) != Some(&entry.attributes.version())
        };
        let new = self.link.view.all().filter(is_news).map(|(path, _)| path);
        let gone = self.base.keys().filter(|path| self.link.view.get(path).is_none());
        new.chain(gone).cloned().collect()
    }

    fn states(&mut self, path: &[u8], pass: &mut SyncPass) -> Option<PathStates> {
        let known = self.base.get(path);
        let base = known.map_or(PathState::Absent, |known| known.state.clone());
        let host = match self.link.view.get(path) {
            None => PathState::Absent,
            Some(entry) => match entry.attributes.kind {
                FileKind::Folder => PathState::Folder,
                FileKind::Link => PathState::Link(entry.target.clone().unwrap_or_default()),
                FileKind::File | FileKind::Special => match known {
                    Some(known) if known.host == entry.attributes => base.clone(),
                    Some(BaseEntry { state: PathState::File { content, .. }, host, .. })
                        if host.is_same_content(&entry.attributes) =>
                    {
                        PathState::File { content: *content, mode: entry.attributes.mode & 0o777 }
                    }
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
                    let read = self.read_chunks(path, now);
                    self.link.note_progress();
                    let chunks = match read {
                        Ok(chunks) => chunks,
                        Err(error) => {
                            self.is_unsettled = true;
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
            return (host != base).then(|| PathStates { local: base.clone(), base, host });
        }
        let is_refused = self.refused.get(path).is_some_and(|refused| match (&refused.found, now) {
            (None, None) => true,
            (Some(refused), Some(now)) => is_same(refused, now),
            _ => false,
        });
        if is_refused && host == base {
            return None;
        }
        Some(PathStates { base, local, host })
    }

    pub(super) fn read_chunks(&self, path: &[u8], now: &FileAttributes) -> io::Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        each_chunk(self.local.open_file(path)?, |chunk, _| {
            chunks.push(chunk);
            match self.link.ends {
                Some(ends) if Instant::now() >= ends => Err(io::Error::other(LinkLoss::Late)),
                _ => Ok(()),
            }
        })?;
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

    /// The host didn't do what it was asked to.
    pub(super) fn refuse(&mut self, path: &[u8], errno: i32, pass: &SyncPass) {
        let reason = io::Error::from_raw_os_error(errno).to_string();
        self.lost.insert(path.to_vec(), reason);
        let errno = Errno::from_raw_os_error(errno);
        match errno {
            // It changed meanwhile, or another operation is using it.
            Errno::STALE | Errno::AGAIN | Errno::EXIST | Errno::NFILE | Errno::INTR => self.is_unsettled = true,
            _ => {
                // Its folder is gone, or has become something else. Names that a lease doesn't show look the same.
                let may_pass = matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::LOOP);
                let found = pass.scan.entries.get(path).copied();
                self.refused.insert(path.to_vec(), RefusedChange { found, may_pass });
            }
        }
    }

    /// Both sides have the same.
    pub(super) fn agreed(&mut self, path: &[u8], entry: Option<BaseEntry>) {
        self.agreements += 1;
        self.lost.remove(path);
        self.refused.remove(path);
        self.unreadable.remove(path);
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
            outcomes.retain(|known, _| !is_below(known, &path));
            pass.states.retain(|known, _| !is_below(known, &path));
        }
    }

    /// Renames the remote's version of something. Returns whether its name is free now.
    pub(super) fn put_aside(&mut self, path: &[u8]) -> bool {
        self.base.retain(|known, _| !is_below(known, path));
        self.is_unsettled = true;
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
        }
        is_done
    }

    fn remove_here(&mut self, path: &[u8], pass: &SyncPass) {
        let Some(found) = pass.scan.entries.get(path) else { return };
        let is_unchanged = self.local.attributes(path).is_some_and(|now| is_same(found, &now));
        match if is_unchanged { self.local.remove(path, found.kind) } else { Err(Errno::STALE) } {
            Ok(()) => self.agreed(path, None),
            // Somebody has put something into it.
            Err(_) => self.is_unsettled = true,
        }
    }

    fn remove_there(&mut self, paths: &[Vec<u8>], pass: &SyncPass) -> Result<(), SyncStop> {
        let mut asked = Vec::new();
        for path in paths.iter().rev() {
            let Some(attributes) = pass.there.get(path).copied() else {
                if !pass.scan.entries.contains_key(path) {
                    self.agreed(path, None);
                }
                continue;
            };
            let version = attributes.version();
            let id = match attributes.kind {
                FileKind::Folder => self.link.send(0, |id| FsRequest::RemoveDir { id, path }.write())?,
                _ => self.link.send(0, |id| FsRequest::RemoveVersion { id, path, version }.write())?,
            };
            asked.push((path, attributes, id));
        }
        for (path, attributes, id) in asked {
            match self.link.answer(id)?.map_err(Errno::from_raw_os_error) {
                Ok(reply) => {
                    self.link.view.set_own(path, reply.stamp, None);
                    self.agreed(path, None);
                }
                Err(Errno::NOENT) => self.agreed(path, None),
                // What the lease doesn't show is in it: the folder stays, here too.
                Err(Errno::NOTEMPTY) if !self.link.view.has_entries(path) => {
                    if self.local.make_dir(path, attributes.mode).is_ok() {
                        self.agree_on_entry(path, attributes, PathState::Folder, None);
                    }
                }
                Err(Errno::NOTEMPTY) => self.is_unsettled = true,
                Err(errno) => self.refuse(path, errno.raw_os_error(), pass),
            }
        }
        Ok(())
    }

    fn agree_on_folder(&mut self, path: &[u8], pass: &SyncPass) -> Result<(), SyncStop> {
        let here = pass.scan.entries.get(path);
        let there = pass.there.get(path).copied();
        match here {
            Some(found) if found.is_folder() => {}
            found => {
                self.clear_here(path, found);
                if self.local.make_dir(path, there.map_or(0o755, |there| there.mode)).is_err() {
                    self.is_unsettled = true;
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
                        self.link.view.set_own(path, reply.stamp, Some(entry));
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
        let is_it = |now: &FileAttributes| match &state {
            PathState::Link(target) => self.local.read_link(path).as_ref() == Ok(target),
            _ => now.is_folder(),
        };
        let local = found.copied().or_else(|| self.local.attributes(path).filter(is_it));
        let Some(local) = local.or_else(|| self.local.attributes(b"").filter(|_| state == PathState::Folder)) else {
            self.is_unsettled = true;
            return;
        };
        self.agreed(path, Some(BaseEntry { state, host, local, chunks: Vec::new() }));
    }

    /// The same in the copy. A folder with something in it that isn't carried, or that the host refuses, gets another name.
    pub(super) fn clear_here(&mut self, path: &[u8], found: Option<&FileAttributes>) {
        let Some(found) = found else { return };
        if self.local.remove(path, found.kind).is_err() && found.is_folder() {
            self.put_aside(path);
        }
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
            Ok(reply) => self.link.view.set_own(path, reply.stamp, None),
            Err(errno) => {
                self.is_unsettled = true;
                let is_full = Errno::from_raw_os_error(errno) == Errno::NOTEMPTY;
                if is_full && !self.link.view.has_entries(path) {
                    // What the lease doesn't show is in it.
                    self.put_aside(path);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn agree_on_link(&mut self, path: &[u8], target: &[u8], pass: &SyncPass) -> Result<(), SyncStop> {
        let states = &pass.states[path];
        let wanted = PathState::Link(target.to_vec());
        let mut host = pass.there.get(path).copied();
        if states.local != wanted {
            self.clear_here(path, pass.scan.entries.get(path));
            if self.local.symlink(path, target).is_err() {
                self.is_unsettled = true;
                return Ok(());
            }
        }
        if states.host != wanted {
            if !self.clear_there(path, host)? {
                return Ok(());
            }
            match self.link.ask(0, |id| FsRequest::Symlink { id, path, target }.write())? {
                Ok(FsReply { entry: Some(entry), stamp, .. }) if entry.target.as_deref() == Some(target) => {
                    host = Some(entry.attributes);
                    self.link.view.set_own(path, stamp, Some(entry));
                }
                // Somebody has replaced it.
                Ok(_) => {
                    self.is_unsettled = true;
                    return Ok(());
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

    /// Passes until nothing is left to do, or nothing has come of it for a while. The end of the lease ends it, too.
    pub(super) fn flush(&mut self) -> Result<(), SyncStop> {
        let (mut since, mut agreements) = (Instant::now(), self.agreements);
        loop {
            self.pass()?;
            if self.agreements != agreements || self.has_deferred {
                (since, agreements) = (Instant::now(), self.agreements);
            }
            if !self.is_unsettled || since.elapsed() > FLUSH_TIMEOUT {
                return Ok(());
            }
            self.link.step(Duration::from_millis(20))?;
        }
    }

    /// Names what the host doesn't have. `false` if there is something without another reason, or it isn't known what.
    pub(super) fn name_unsent(&mut self, reason: &str) -> bool {
        let Ok(scan) = self.local.scan() else { return false };
        let is_sent = |(path, now): &(&Vec<u8>, &FileAttributes)| {
            self.refused.contains_key(*path) || self.base.get(*path).is_some_and(|base| is_same(&base.local, now))
        };
        let unsent: Vec<Vec<u8>> =
            scan.entries.iter().filter(|entry| !is_sent(entry)).map(|(path, _)| path.clone()).collect();
        let gone = self.base.keys().filter(|path| !scan.entries.contains_key(*path)).cloned();
        let known = self.lost.len();
        for path in unsent.into_iter().chain(gone.collect::<Vec<_>>()) {
            self.lost.entry(path).or_insert_with(|| reason.to_owned());
        }
        self.lost.len() == known
    }
}

/// Whether a path is this one, or below it.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty() || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}
