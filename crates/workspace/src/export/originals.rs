//! Keeps originals of what a lease changes for the first time, so that changes can be shown and reverted: a reflink or
//! copy where bytes will be overwritten, a hard link where only a name goes away. Only changes use space.
//!
//! An index line is written before the change is made, so a crash of the daemon loses nothing. The index is synced once
//! a second and at the end of the lease. A power cut can cost its last second.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use attache_os::file_space;
use rustix::{
    fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, unlinkat},
    io::Errno,
};

use super::{
    FileAttributes, FileKind, FileTime,
    change::set_times,
    git_guard::{TrustedGitFile, trusted_git_file},
    index::OriginalsIndex,
    lease_record::{LeaseRecord, LeaseRecordEntry, LeaseRecordLine, OriginalFile, PathAfter, PathBefore, PathStamp},
    path::{ExportPath, show},
    quota::{FILES, OriginalsLimit},
    refusal::{ExportError, ExportRefusal},
    root::{ExportRoot, PathHandle, attributes_of},
};

/// Where originals are kept: a private folder of this lease, outside the exported folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OriginalsFolder {
    dir: PathBuf,
}

#[derive(Debug)]
pub(super) struct OriginalsStore {
    dir: PathBuf,
    folder: OwnedFd,
    index: OriginalsIndex,
    entries: BTreeMap<Vec<u8>, LeaseRecordEntry>,
    /// Originals that are hard links to a file that still has a name in the tree, by inode.
    linked: HashMap<u64, LinkedOriginal>,
    next: u64,
    copied: u64,
    /// Paths at which nothing existed.
    free_names: u64,
    limit: OriginalsLimit,
}

#[derive(Debug, Clone, Copy)]
struct LinkedOriginal {
    kept: u64,
    size: u64,
    modified: FileTime,
}

/// What is about to happen to the current entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingChange {
    /// It changes in place.
    ChangedInPlace,
    /// It loses this name, but no byte of it changes.
    LosesName,
}

const COPY_CHUNK: u64 = 8 << 20;

// === impl OriginalsFolder ===

impl OriginalsFolder {
    /// The folder is created if missing, accessible only to this user.
    pub fn in_folder(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub(super) fn open(self, lent: &Path, limit: OriginalsLimit) -> Result<OriginalsStore, ExportError> {
        let dir = self.dir;
        match Self::prepare(&dir, lent, limit) {
            Ok(Some(keeper)) => Ok(keeper),
            Ok(None) => Err(ExportError::BeforeInside { dir }),
            Err(source) => Err(ExportError::Before { dir, source }),
        }
    }

    /// Does for a lease of a killed daemon what the end of a lease does: afterwards, originals share their bytes with
    /// no file in the folder. Does nothing if no originals were kept.
    pub fn finish(self) -> io::Result<()> {
        match OriginalsStore::new(self.dir, OriginalsLimit::NONE) {
            Ok(mut keeper) => {
                keeper.finish();
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Keeps a file or link of the folder before a requested revert overwrites it.
    pub(crate) fn keep_version(self, root: &ExportRoot, path: &[u8], found: &PathHandle) -> Result<(), ExportRefusal> {
        let mut keeper = OriginalsStore::new(self.dir, OriginalsLimit::NONE)?;
        keeper.keep_version(root, path, found, &|| Ok(()))?;
        keeper.finish();
        Ok(())
    }

    /// After a part of a file's change was reverted: the rest is what the lease left.
    pub(crate) fn record_after(self, root: &ExportRoot, path: &[u8]) -> Result<(), ExportRefusal> {
        let inode = root.find(path)?.attributes.inode;
        let mut keeper = OriginalsStore::new(self.dir, OriginalsLimit::NONE)?;
        keeper.record_file_after(root, path, inode, None);
        keeper.finish();
        Ok(())
    }

    /// After a revert: what is at these paths now is what was left there.
    pub(crate) fn record_all_after(self, root: &ExportRoot, paths: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
        let mut keeper = OriginalsStore::new(self.dir, OriginalsLimit::NONE)?;
        for path in paths {
            keeper.record_after(root, &path);
        }
        keeper.finish();
        Ok(())
    }

    fn prepare(dir: &Path, lent: &Path, limit: OriginalsLimit) -> io::Result<Option<OriginalsStore>> {
        // Checked before it is created, so that nothing is left behind inside the exported folder.
        let above = dir.ancestors().find(|above| above.exists()).unwrap_or(dir);
        if above.canonicalize()?.starts_with(lent.canonicalize()?) {
            return Ok(None);
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        OriginalsStore::new(dir.to_owned(), limit).map(Some)
    }
}

// === impl OriginalsStore ===

impl OriginalsStore {
    /// Takes over what a killed daemon may have left in the folder.
    fn new(dir: PathBuf, limit: OriginalsLimit) -> io::Result<Self> {
        let (index, LeaseRecord { entries, .. }) = OriginalsIndex::open(&dir)?;
        let all = entries.values().flat_map(|entry| std::iter::once(&entry.was).chain(&entry.versions));
        let kept: HashMap<u64, &OriginalFile> =
            all.filter_map(PathBefore::file).map(|file| (file.kept, file)).collect();
        let (mut linked, mut next) = (HashMap::new(), 1);
        for name in fs::read_dir(&dir)? {
            let name = name?;
            let number = name.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            let Some(number) = number else { continue };
            next = next.max(number.saturating_add(1));
            let now = name.metadata()?;
            match kept.get(&number) {
                _ if now.nlink() < 2 => {}
                Some(file) if file.inode == now.ino() => {
                    linked
                        .insert(file.inode, LinkedOriginal { kept: number, size: file.size, modified: file.modified });
                }
                Some(_) => {}
                // Killed before the line was written, so the file was not changed.
                None => fs::remove_file(name.path())?,
            }
        }
        let free_names = entries.values().filter(|entry| entry.was == PathBefore::Absent).count() as u64;
        let folder = File::open(&dir)?.into();
        Ok(Self { dir, folder, index, entries, linked, next, copied: 0, free_names, limit })
    }

    /// A temporary folder that only this lease's export uses.
    pub(super) fn scratch(&self) -> &Path {
        &self.dir
    }

    pub(super) fn record(&self) -> LeaseRecord {
        LeaseRecord { before: self.dir.clone(), entries: self.entries.clone() }
    }

    /// Keeps the current state of a path, unless already done. `found` is what is there. `go_on` is asked during long
    /// copies.
    pub(super) fn keep_original(
        &mut self,
        root: &ExportRoot,
        path: &[u8],
        found: Option<&PathHandle>,
        fate: PendingChange,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        if let Some(entry) = self.entries.get(path) {
            let was = entry.was.is_times_only().then(|| entry.was.clone().whole());
            let changed_here = !entry.left.is_unchanged(found.map(|found| &found.attributes));
            // For a change in place, the original under another name of this file could still change with it.
            if let Some(found) = found.filter(|_| fate == PendingChange::ChangedInPlace) {
                self.unshare(found, go_on)?;
            }
            let version = if changed_here { self.version(root, path, found, fate, go_on)? } else { None };
            return self.amend(path, was, changed_here, version);
        }
        let was = match found {
            // Moving a folder back and forth creates no file, but as many names as it contains.
            None if self.limit.free_names.is_some_and(|limit| self.free_names >= limit) => {
                return Err(ExportRefusal::Quota(FILES));
            }
            None => PathBefore::Absent,
            Some(found) => {
                if fate == PendingChange::ChangedInPlace {
                    self.unshare(found, go_on)?;
                }
                self.original(root, path, found, fate, go_on)?
            }
        };
        self.index.write(&[LeaseRecordLine { was: Some(was.clone()), ..LeaseRecordLine::about(path) }])?;
        self.free_names += u64::from(was == PathBefore::Absent);
        self.entries.insert(path.to_vec(), LeaseRecordEntry::new(was));
        self.index.sync_now_and_then();
        Ok(())
    }

    /// Keeps what somebody on the host made of a path that the lease had changed before. Nothing for a folder, and
    /// nothing that is kept already.
    fn version(
        &mut self,
        root: &ExportRoot,
        path: &[u8],
        found: Option<&PathHandle>,
        fate: PendingChange,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<Option<PathBefore>, ExportRefusal> {
        let last = self.entries.get(path).and_then(|entry| entry.versions.last());
        match (found, last) {
            (None, Some(PathBefore::Absent)) => Ok(None),
            (None, _) => Ok(Some(PathBefore::Absent)),
            (Some(found), _) if !matches!(found.attributes.kind, FileKind::File | FileKind::Link) => Ok(None),
            (Some(found), Some(PathBefore::File(last))) if last.is(&found.attributes) => Ok(None),
            (Some(found), _) => self.original(root, path, found, fate, go_on).map(Some),
        }
    }

    /// Adds to the record of a path.
    fn amend(
        &mut self,
        path: &[u8],
        was: Option<PathBefore>,
        changed_here: bool,
        version: Option<PathBefore>,
    ) -> Result<(), ExportRefusal> {
        let Some(entry) = self.entries.get_mut(path) else { return Ok(()) };
        if was.is_some() || version.is_some() || (changed_here && !entry.changed_here) {
            let line = LeaseRecordLine {
                was: was.clone(),
                changed_here,
                version: version.clone(),
                ..LeaseRecordLine::about(path)
            };
            self.index.write(&[line])?;
        }
        entry.was = was.unwrap_or_else(|| entry.was.clone());
        entry.changed_here |= changed_here;
        entry.versions.extend(version);
        Ok(())
    }

    /// Like [`Self::keep_original`], for a file that somebody on the host wrote to while the lease had it open.
    pub(super) fn keep_version(
        &mut self,
        root: &ExportRoot,
        path: &[u8],
        found: &PathHandle,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        let version = self.version(root, path, Some(found), PendingChange::ChangedInPlace, go_on)?;
        self.amend(path, None, true, version)
    }

    /// Keeps the times of the folder in which a name is about to change.
    pub(super) fn keep_folder(&mut self, root: &ExportRoot, path: &[u8]) -> Result<(), ExportRefusal> {
        if self.entries.contains_key(path) {
            return Ok(());
        }
        let now = root.find(path)?.attributes;
        let was = PathBefore::Folder { mode: now.mode, modified: now.modified, times_only: true };
        self.index.write(&[LeaseRecordLine { was: Some(was.clone()), ..LeaseRecordLine::about(path) }])?;
        self.entries.insert(path.to_vec(), LeaseRecordEntry::new(was));
        Ok(())
    }

    /// Records the state of a path after a change by the lease.
    pub(super) fn record_after(&mut self, root: &ExportRoot, path: &[u8]) {
        if !self.entries.contains_key(path) {
            return;
        }
        let Ok(found) = root.find_optional(path) else { return };
        self.record_left(&[(path, PathAfter::of(found.as_ref().map(|found| &found.attributes)))]);
    }

    /// Like [`Self::record_after`], for a file that changed in place: only if the path still is that file. `seen` is
    /// its size and time after the lease last wrote to it.
    pub(super) fn record_file_after(
        &mut self,
        root: &ExportRoot,
        path: &[u8],
        inode: u64,
        seen: Option<(u64, FileTime)>,
    ) {
        if let Ok(Some(found)) = root.find_optional(path)
            && found.attributes.inode == inode
        {
            let left = match seen {
                Some((size, modified)) => PathAfter::Is(PathStamp::seen(&found.attributes, size, modified)),
                None => PathAfter::of(Some(&found.attributes)),
            };
            self.record_left(&[(path, left)]);
            if found.attributes.links > 1 {
                // Its other names changed with it.
                let twins = self.entries.iter().filter(|(_, entry)| entry.is_of(inode)).map(|(path, _)| path.clone());
                for twin in twins.collect::<Vec<_>>() {
                    self.record_after(root, &twin);
                }
            }
        }
    }

    /// Writes new information immediately.
    pub(super) fn record_left(&mut self, all: &[(&[u8], PathAfter)]) {
        let mut lines = Vec::with_capacity(all.len());
        for &(path, left) in all {
            if let Some(entry) = self.entries.get_mut(path).filter(|entry| entry.left != left) {
                entry.left = left;
                lines.push(LeaseRecordLine { left: Some(left), ..LeaseRecordLine::about(path) });
            }
        }
        // A line that can't be written costs the knowledge of who changed the path last. It then counts as changed on
        // the host.
        if let Err(refusal) = self.index.write(&lines) {
            tracing::warn!(error = %refusal, "failed to write the index of originals");
        }
    }

    /// Git on the host doesn't read a file that is as its index says, and the remote may have written the index. But it reads
    /// every file that is as new as the index.
    pub(super) fn distrust_indexes(&mut self, root: &ExportRoot) {
        let is_index = |path: &&Vec<u8>| trusted_git_file(path) == Some(TrustedGitFile::Index);
        let indexes: Vec<Vec<u8>> = self.entries.keys().filter(is_index).cloned().collect();
        for path in indexes {
            // To git, zero is unknown.
            let oldest = Some(FileTime { seconds: 1, nanos: 0 });
            if let Ok(Some(found)) = root.find_optional(&path)
                && found.attributes.kind == FileKind::File
                && set_times(&found, None, oldest).is_ok()
            {
                self.record_file_after(root, &path, found.attributes.inode, None);
            }
        }
    }

    /// Whether nothing was at the path before the lease.
    pub(super) fn is_new(&self, path: &[u8]) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.was == PathBefore::Absent)
    }

    /// How many links of a file are originals.
    pub(super) fn links_of(&self, inode: u64) -> u32 {
        u32::from(self.linked.contains_key(&inode))
    }

    pub(super) fn sync(&mut self) {
        self.index.sync();
    }

    fn original(
        &mut self,
        root: &ExportRoot,
        path: &[u8],
        found: &PathHandle,
        fate: PendingChange,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<PathBefore, ExportRefusal> {
        let now = &found.attributes;
        Ok(match now.kind {
            FileKind::Folder => PathBefore::Folder { mode: now.mode, modified: now.modified, times_only: false },
            FileKind::Link => PathBefore::Link { target: show(&found.target()?), modified: now.modified },
            FileKind::Special => return Err(ExportRefusal::Denied("it is not a file, folder or symbolic link")),
            FileKind::File => {
                let kept = self.next;
                self.next += 1;
                // Another name could change the bytes, so only a file with one name is kept as a link.
                if fate == PendingChange::LosesName && now.links == 1 && self.link(root, path, found, kept)? {
                    self.linked.insert(now.inode, LinkedOriginal { kept, size: now.size, modified: now.modified });
                } else {
                    self.copy(found.reopen(OFlags::RDONLY)?, &kept.to_string(), go_on)?;
                }
                let (mode, modified, size) = (now.mode, now.modified, now.size);
                PathBefore::File(OriginalFile { mode, modified, size, inode: now.inode, links: now.links, kept })
            }
        })
    }

    /// Whether the original was kept as a hard link.
    fn link(&self, root: &ExportRoot, path: &[u8], found: &PathHandle, kept: u64) -> Result<bool, ExportRefusal> {
        let place = ExportPath::parse(path)?;
        let name = kept.to_string();
        let parent = root.folder(place.parent())?;
        if linkat(&parent, place.name(), &self.folder, &name, AtFlags::empty()).is_err() {
            return Ok(false);
        }
        let linked = rustix::fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if linked.st_ino == found.attributes.inode {
            return Ok(true);
        }
        // Another file was put there meanwhile. The handle still has the right one.
        unlinkat(&self.folder, &name, AtFlags::empty())?;
        Ok(false)
    }

    /// Gives an original that is a hard link to this file its own bytes.
    fn unshare(
        &mut self,
        found: &PathHandle,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        let Some(linked) = self.linked.get(&found.attributes.inode).copied() else { return Ok(()) };
        let name = linked.kept.to_string();
        if linked.is_spoiled(&found.attributes) {
            // Somebody on this machine has written to it since. The original is lost, and the new content must not be
            // mistaken for it.
            unlinkat(&self.folder, &name, AtFlags::empty())?;
        } else {
            let copy = format!("{name}.copy");
            self.copy(found.reopen(OFlags::RDONLY)?, &copy, go_on)?;
            renameat(&self.folder, &copy, &self.folder, &name)?;
        }
        self.linked.remove(&found.attributes.inode);
        Ok(())
    }

    /// At the end of the lease: stops files in the folder from sharing bytes with originals, so that writing to them
    /// changes nothing else, and the next lease finds no other name of them.
    pub(super) fn finish(&mut self) {
        for linked in self.linked.clone().into_values() {
            let done = match PathHandle::at(&self.folder, &linked.kept.to_string()) {
                // The only remaining name, or one that must be found spoiled.
                Ok(found) if found.attributes.links == 1 || linked.is_spoiled(&found.attributes) => Ok(()),
                Ok(found) => self.unshare(&found, &|| Ok(())),
                Err(errno) => Err(errno.into()),
            };
            if let Err(refusal) = done {
                tracing::warn!(error = %refusal, "an original stays linked to a file in the folder");
            }
        }
        self.sync();
    }

    fn copy(
        &mut self,
        from: OwnedFd,
        name: &str,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let to = openat(&self.folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        if file_space::share_bytes(&to, &from).is_ok() {
            return Ok(());
        }
        let size = attributes_of(&from)?.size;
        let copied = self.room_for(size).and_then(|()| copy_bytes(from, to, go_on));
        match copied {
            Ok(bytes) => self.copied += bytes,
            Err(refusal) => {
                let _ = unlinkat(&self.folder, name, AtFlags::empty());
                return Err(refusal);
            }
        }
        Ok(())
    }

    fn room_for(&self, size: u64) -> Result<(), ExportRefusal> {
        if self.limit.bytes.is_some_and(|limit| self.copied.saturating_add(size) > limit) {
            return Err(ExportRefusal::Quota("copies of originals"));
        }
        Ok(())
    }
}

impl OriginalFile {
    /// Whether this is the file that was kept, unchanged.
    fn is(&self, now: &FileAttributes) -> bool {
        (self.inode, self.size, self.modified, self.mode) == (now.inode, now.size, now.modified, now.mode)
    }
}

impl LinkedOriginal {
    fn is_spoiled(&self, now: &FileAttributes) -> bool {
        (now.size, now.modified) != (self.size, self.modified)
    }
}

impl PathBefore {
    const fn file(&self) -> Option<&OriginalFile> {
        match self {
            Self::File(file) => Some(file),
            _ => None,
        }
    }
}

/// In pieces, so that the end of a lease doesn't have to wait for a large file.
fn copy_bytes(from: OwnedFd, to: OwnedFd, go_on: &dyn Fn() -> Result<(), ExportRefusal>) -> Result<u64, ExportRefusal> {
    let mut bytes = 0;
    loop {
        go_on()?;
        let at_once = usize::try_from(COPY_CHUNK).unwrap_or(usize::MAX);
        match file_space::copy_bytes(&from, &to, at_once) {
            Ok(0) if bytes > 0 => return Ok(bytes),
            // Some kernels and file systems report "nothing copied" for a file that has bytes.
            Ok(0) | Err(Errno::XDEV | Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS | Errno::IO | Errno::PERM)
                if bytes == 0 =>
            {
                break;
            }
            Ok(more) => bytes += more as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let (mut from, mut to) = (File::from(from), File::from(to));
    loop {
        go_on()?;
        match io::copy(&mut (&mut from).take(COPY_CHUNK), &mut to)? {
            0 => return Ok(bytes),
            more => bytes += more,
        }
    }
}
