//! Keeps what a lease is about to change for the first time, so that it can be shown and put back: a reflink or a copy where
//! bytes will be overwritten, a second link where only a name goes away. Space is used only for what changes.
//!
//! A line is in the index before the change is made, so a crash of the daemon loses nothing. The index goes to the disk once
//! a second and at the end of the lease; a power cut can cost the last second of it.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{DirBuilderExt as _, MetadataExt as _},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, unlinkat},
    io::Errno,
};

use super::{
    attributes::{FileAttributes, FileKind, FileTime},
    index::OriginalsIndex,
    lease_record::{LeaseRecord, LeaseRecordEntry, LeaseRecordLine, OriginalFile, PathAfter, PathBefore, PathStamp},
    path::{ExportPath, show},
    quota::{FILES, OriginalsLimit},
    refusal::{ExportError, ExportRefusal},
    root::{ExportRoot, PathHandle, attributes_of},
};

/// Where the originals go: a folder of this lease alone, outside of what is lent.
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
    /// Originals that are a second link to a file which still has a name in the tree, by inode.
    linked: HashMap<u64, LinkedOriginal>,
    next: u64,
    copied: u64,
    /// Paths at which nothing was.
    free_names: u64,
    limit: OriginalsLimit,
}

#[derive(Debug, Clone, Copy)]
struct LinkedOriginal {
    kept: u64,
    size: u64,
    modified: FileTime,
}

/// What is about to happen to the thing that has the path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PendingChange {
    /// It changes where it is.
    ChangedInPlace,
    /// It loses this name, and no byte of it changes.
    LosesName,
}

const COPY_CHUNK: u64 = 8 << 20;

// === impl OriginalsFolder ===

impl OriginalsFolder {
    /// The folder is made when it is missing, for this user alone.
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

    /// Does for a lease whose daemon was killed what the end of a lease does: the originals share their bytes with no file
    /// of the folder any more. Where no originals were kept, there is nothing to do.
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

    /// Keeps a file or link of the folder before somebody has it overwritten by a revert.
    pub(crate) fn keep_version(self, root: &ExportRoot, path: &[u8], found: &PathHandle) -> Result<(), ExportRefusal> {
        let mut keeper = OriginalsStore::new(self.dir, OriginalsLimit::NONE)?;
        keeper.keep_version(root, path, found, &|| Ok(()))?;
        keeper.finish();
        Ok(())
    }

    fn prepare(dir: &Path, lent: &Path, limit: OriginalsLimit) -> io::Result<Option<OriginalsStore>> {
        // Asked before it is made, so that nothing is left behind inside of what is lent.
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
    /// Takes up what a daemon that was killed may have left in the folder.
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
                // Killed before the line was written, so what was to change is as it was.
                None => fs::remove_file(name.path())?,
            }
        }
        let free_names = entries.values().filter(|entry| entry.was == PathBefore::Absent).count() as u64;
        let folder = File::open(&dir)?.into();
        Ok(Self { dir, folder, index, entries, linked, next, copied: 0, free_names, limit })
    }

    /// A folder that nobody but this lease's export uses, for a moment.
    pub(super) fn scratch(&self) -> &Path {
        &self.dir
    }

    pub(super) fn record(&self) -> LeaseRecord {
        LeaseRecord { before: self.dir.clone(), entries: self.entries.clone() }
    }

    /// Keeps how a path is now, unless that was done before; `found` is what is there. `go_on` is asked while it takes long.
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
            // In place, the original of another name of this file could still change with it.
            if let Some(found) = found.filter(|_| fate == PendingChange::ChangedInPlace) {
                self.unshare(found, go_on)?;
            }
            let version = if changed_here { self.version(root, path, found, fate, go_on)? } else { None };
            return self.amend(path, was, changed_here, version);
        }
        let was = match found {
            // Moving a folder back and forth makes no file, and as many names as it holds.
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

    /// Keeps what somebody at the host made of a path that the lease had changed before; nothing of a folder, and nothing that
    /// is kept already.
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

    /// Adds to what is known of a path.
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

    /// As [`Self::keep_original`] does it, for a file that somebody at the host wrote into while the lease had it open.
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

    /// Notes how a path is left after a change by the lease.
    pub(super) fn record_after(&mut self, root: &ExportRoot, path: &[u8]) {
        if !self.entries.contains_key(path) {
            return;
        }
        let Ok(found) = root.find_optional(path) else { return };
        self.record_left(&[(path, PathAfter::of(found.as_ref().map(|found| &found.attributes)))]);
    }

    /// As [`Self::record_after`], for a file that changed where it is: only if the path still is that file. `seen` is its size and time
    /// after the lease wrote into it last.
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

    /// What is new of it is written at once.
    pub(super) fn record_left(&mut self, all: &[(&[u8], PathAfter)]) {
        let mut lines = Vec::with_capacity(all.len());
        for &(path, left) in all {
            if let Some(entry) = self.entries.get_mut(path).filter(|entry| entry.left != left) {
                entry.left = left;
                lines.push(LeaseRecordLine { left: Some(left), ..LeaseRecordLine::about(path) });
            }
        }
        // A line that cannot be written costs the knowledge of who changed it last, which then is nobody of ours.
        if let Err(refusal) = self.index.write(&lines) {
            tracing::warn!(error = %refusal, "the index of originals cannot be written");
        }
    }

    /// Whether nothing was at the path before the lease.
    pub(super) fn is_new(&self, path: &[u8]) -> bool {
        self.entries.get(path).is_some_and(|entry| entry.was == PathBefore::Absent)
    }

    /// How many links of a file are ours.
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
            FileKind::Special => return Err(ExportRefusal::Denied("it is neither a file nor a folder nor a link")),
            FileKind::File => {
                let kept = self.next;
                self.next += 1;
                // Another name could change the bytes, so only a file with one name is kept by a link.
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

    /// Whether the original could be kept by a second link to it.
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
        // Somebody put another file there meanwhile; the handle still has the right one.
        unlinkat(&self.folder, &name, AtFlags::empty())?;
        Ok(false)
    }

    /// Gives an original that is a link to this file bytes of its own.
    fn unshare(
        &mut self,
        found: &PathHandle,
        go_on: &dyn Fn() -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        let Some(linked) = self.linked.get(&found.attributes.inode).copied() else { return Ok(()) };
        let name = linked.kept.to_string();
        if linked.is_spoiled(&found.attributes) {
            // Somebody here has written into it since: what it was is lost, and must not be taken for what it is now.
            unlinkat(&self.folder, &name, AtFlags::empty())?;
        } else {
            let copy = format!("{name}.copy");
            self.copy(found.reopen(OFlags::RDONLY)?, &copy, go_on)?;
            renameat(&self.folder, &copy, &self.folder, &name)?;
        }
        self.linked.remove(&found.attributes.inode);
        Ok(())
    }

    /// After the end of the lease: no file of the folder shares its bytes with an original any more, so that whoever writes
    /// into it changes nothing else, and the next lease finds no name of it elsewhere.
    pub(super) fn finish(&mut self) {
        for linked in self.linked.clone().into_values() {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = openat(&self.folder, linked.kept.to_string(), flags, Mode::empty()).and_then(PathHandle::of);
            let done = match found {
                // The only name that is left, or one that is to be found spoiled.
                Ok(found) if found.attributes.links == 1 || linked.is_spoiled(&found.attributes) => Ok(()),
                Ok(found) => self.unshare(&found, &|| Ok(())),
                Err(errno) => Err(errno.into()),
            };
            if let Err(refusal) = done {
                tracing::warn!(error = %refusal, "an original stays linked to a file of the folder");
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
        if rustix::fs::ioctl_ficlone(&to, &from).is_ok() {
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
            return Err(ExportRefusal::Quota("copies of what was there before"));
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

/// In pieces, so that the end of a lease need not wait for a large file.
fn copy_bytes(from: OwnedFd, to: OwnedFd, go_on: &dyn Fn() -> Result<(), ExportRefusal>) -> Result<u64, ExportRefusal> {
    let mut bytes = 0;
    loop {
        go_on()?;
        let at_once = usize::try_from(COPY_CHUNK).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from.as_fd(), None, to.as_fd(), None, at_once) {
            Ok(0) if bytes > 0 => return Ok(bytes),
            // Some kernels and file systems say "nothing copied" of a file that has bytes.
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
