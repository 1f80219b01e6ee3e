//! Single steps of a revert, each through the handle of its folder.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
};

use attache_os::{file_space, path_handle::WRITE};
use rustix::{
    fs::{
        AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, chownat, linkat, mkdirat, openat, renameat, renameat_with,
        symlinkat, unlinkat,
    },
    io::Errno,
};

use super::compare::{open_original, same_content};
use crate::export::{
    ExportRefusal, FileAttributes, FileKind, FileTime, LeaseRecord, OriginalFile, OriginalsFolder, PathBefore,
    PathStamp,
    path::ExportPath,
    root::{ExportRoot, PathHandle, attributes_of},
    set_times,
};

/// Restores one path after another.
pub(super) struct RestoreSteps<'a> {
    root: &'a ExportRoot,
    record: &'a LeaseRecord,
    /// The temporary name under which an entry is created before it takes its place. It is unique to this record:
    /// another revert doesn't collide with it, and the next revert of the same record removes what a killed one left.
    making: String,
    twins: HardLinks,
    replaced: ReplacedFiles<'a>,
}

/// Why something isn't restored.
#[derive(Debug)]
pub(super) enum RestoreRefusal {
    /// Somebody on this machine changed it after it was checked. Their version stays in place.
    Edited,
    Refused(ExportRefusal),
}

/// Replaced files, held for a while: a program that had one open may still write to it.
struct ReplacedFiles<'a> {
    root: &'a ExportRoot,
    record: &'a LeaseRecord,
    held: VecDeque<(ExportPath, PathHandle)>,
    /// Paths of those that were written to, and what to report.
    late: Vec<(ExportPath, String)>,
}

/// How many are held at a time.
const MAX_HELD: usize = 16;
const WRITTEN_LATE: &str =
    "a program on this machine still wrote to the old file after the revert; that version is kept with the originals";
const WRITTEN_LATE_LOST: &str =
    "a program on this machine still wrote to the old file after the revert, and that version could not be kept";

/// Files that had several names.
struct HardLinks {
    several: BTreeSet<FileIdentity>,
    put_back: BTreeMap<FileIdentity, ExportPath>,
    /// Inodes of files that this revert created. An inode may be reused from a deleted file, and then isn't a name of
    /// it.
    made: BTreeSet<u64>,
}

/// Inode, size and modification time, because an inode alone may be reused for another file.
type FileIdentity = (u64, u64, FileTime);

// === impl RestoreSteps ===

impl<'a> RestoreSteps<'a> {
    pub(super) fn new(root: &'a ExportRoot, record: &'a LeaseRecord) -> Self {
        let (device, inode) = fs::metadata(&record.before).map_or((0, 0), |before| (before.dev(), before.ino()));
        let making = format!(".attache-revert-{device:x}-{inode:x}");
        let replaced = ReplacedFiles { root, record, held: VecDeque::new(), late: Vec::new() };
        Self { root, record, making, twins: HardLinks::of(record), replaced }
    }

    /// Creates the folder if it is missing, writable for what goes into it. Its mode and times are set last.
    pub(super) fn folder(&self, place: &ExportPath, mode: u32) -> Result<(), ExportRefusal> {
        let parent = self.root.folder(place.parent())?;
        match mkdirat(&parent, place.name(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let found = self.root.find(place.whole())?;
                Ok(found.set_mode(mode | 0o700)?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Creates the folders above a path that are missing. If that isn't possible, restoring the path says why.
    pub(super) fn parents(&self, place: &ExportPath) {
        let whole = place.whole();
        for (end, _) in whole.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            let above = &whole[..end];
            let Ok(folder) = ExportPath::parse(above) else { return };
            if !matches!(self.root.find_optional(above), Ok(None)) {
                continue;
            }
            let mode = match self.record.entries.get(above).map(|entry| &entry.was) {
                Some(PathBefore::Folder { mode, .. }) => *mode,
                _ => 0o755,
            };
            let made = self.folder(&folder, mode).and_then(|()| Ok(self.root.find(above)?.set_mode(mode | 0o700)?));
            if made.is_err() {
                return;
            }
        }
    }

    pub(super) fn link(
        &mut self,
        place: &ExportPath,
        target: &[u8],
        modified: FileTime,
        judged: Option<&FileAttributes>,
    ) -> Result<(), RestoreRefusal> {
        let parent = self.root.folder(place.parent())?;
        self.drop_leftover(&parent)?;
        symlinkat(target, &parent, &self.making)?;
        set_times(&self.made(&parent)?, None, Some(modified))?;
        self.take_place(&parent, place, judged)
    }

    /// Names that were one file become one file again.
    pub(super) fn file(
        &mut self,
        place: &ExportPath,
        was: &OriginalFile,
        judged: Option<&FileAttributes>,
    ) -> Result<(), RestoreRefusal> {
        let there = self.root.find_optional(place.whole())?;
        // A link may have got the inode of a deleted file.
        let is_same = |now: &FileAttributes| now.inode == was.inode && now.kind == FileKind::File && was.links > 1;
        let same = there.filter(|there| is_same(&there.attributes));
        let had_twins = self.twins.several.contains(&identity(was)) && !self.twins.made.contains(&was.inode);
        let twin = match self.twins.put_back.get(&identity(was)) {
            Some(twin) => Some(twin.clone()),
            None if same.is_none() && had_twins => self.other_name(was)?,
            None => None,
        };
        if let Some(twin) = twin {
            let (from, to) = (self.root.folder(twin.parent())?, self.root.folder(place.parent())?);
            self.drop_leftover(&to)?;
            linkat(&from, twin.name(), &to, &self.making, AtFlags::empty())?;
            return self.take_place(&to, place, judged);
        }
        self.twins.put_back.insert(identity(was), place.clone());
        if let Some(found) = same {
            // It still is the file of its other names, so it changes in place.
            let file = found.reopen(WRITE)?;
            if judged.map(PathStamp::of) != Some(PathStamp::of(&attributes_of(&file)?)) {
                return Err(RestoreRefusal::Edited);
            }
            rustix::fs::ftruncate(&file, 0)?;
            self.copy(was, File::from(file))?;
            return Ok(attributes(&found, was.mode, was.modified)?);
        }
        let parent = self.root.folder(place.parent())?;
        let made = self.create(&parent)?;
        self.copy(was, File::from(made.try_clone()?))?;
        let made = PathHandle::of(made)?;
        self.twins.made.insert(made.attributes.inode);
        attributes(&made, was.mode, was.modified)?;
        self.take_place(&parent, place, judged)
    }

    /// Gives a file other bytes. Its mode, its owner and its other names stay.
    pub(super) fn rewrite(
        &mut self,
        place: &ExportPath,
        bytes: &[u8],
        judged: &FileAttributes,
    ) -> Result<(), RestoreRefusal> {
        if judged.links > 1 {
            let file = self.root.find(place.whole())?.reopen(WRITE)?;
            if PathStamp::of(&attributes_of(&file)?) != PathStamp::of(judged) {
                return Err(RestoreRefusal::Edited);
            }
            rustix::fs::ftruncate(&file, 0)?;
            return Ok(File::from(file).write_all(bytes)?);
        }
        let parent = self.root.folder(place.parent())?;
        let made = self.create(&parent)?;
        File::from(made.try_clone()?).write_all(bytes)?;
        let made = PathHandle::of(made)?;
        if (made.attributes.uid, made.attributes.gid) != (judged.uid, judged.gid) {
            let (owner, group) = (Uid::from_raw(judged.uid), Gid::from_raw(judged.gid));
            chownat(&parent, &self.making, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        made.set_mode(judged.mode)?;
        self.take_place(&parent, place, Some(judged))
    }

    /// Removes a file or link, unless it is a different one by now.
    pub(super) fn remove(&mut self, place: &ExportPath, judged: &FileAttributes) -> Result<(), RestoreRefusal> {
        // If its folder is gone, so is the entry.
        let Ok(parent) = self.root.folder(place.parent()) else { return Ok(()) };
        self.drop_leftover(&parent)?;
        match renameat(&parent, place.name(), &parent, &self.making) {
            Err(Errno::NOENT) => return Ok(()),
            done => done?,
        }
        let found = self.made(&parent)?;
        if PathStamp::of(&found.attributes) == PathStamp::of(judged) {
            self.drop_leftover(&parent)?;
            self.replaced.hold(place, found);
            return Ok(());
        }
        match renameat_with(&parent, &self.making, &parent, place.name(), RenameFlags::NOREPLACE) {
            // Another one was created meanwhile.
            Err(Errno::EXIST) => {
                self.replaced.keep(place, &found)?;
                self.drop_leftover(&parent)?;
            }
            done => done?,
        }
        Err(RestoreRefusal::Edited)
    }

    /// Swaps the created entry with the current one in a single step, and only then checks the latter: edits up to this
    /// moment are noticed, and put back.
    fn take_place(
        &mut self,
        parent: &OwnedFd,
        place: &ExportPath,
        judged: Option<&FileAttributes>,
    ) -> Result<(), RestoreRefusal> {
        let Some(judged) = judged else {
            return match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {
                    self.drop_leftover(parent)?;
                    Err(RestoreRefusal::Edited)
                }
                done => Ok(done?),
            };
        };
        let made = self.made(parent)?.attributes;
        let ours = PathStamp::of(&made);
        // Both may already be names of one file.
        let there = self.root.find_optional(place.whole())?;
        if there.is_some_and(|there| there.attributes.inode == made.inode) {
            return Ok(self.drop_leftover(parent)?);
        }
        match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => {
                self.drop_leftover(parent)?;
                return Err(RestoreRefusal::Edited);
            }
            // Not supported by the file system: check as late as possible.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let now = self.root.find_optional(place.whole())?;
                if now.as_ref().map(|now| PathStamp::of(&now.attributes)) != Some(PathStamp::of(judged)) {
                    self.drop_leftover(parent)?;
                    return Err(RestoreRefusal::Edited);
                }
                renameat(parent, &self.making, parent, place.name())?;
                if let Some(now) = now {
                    self.replaced.hold(place, now);
                }
                return Ok(());
            }
            done => done?,
        }
        let found = self.made(parent)?;
        if PathStamp::of(&found.attributes) == PathStamp::of(judged) {
            self.drop_leftover(parent)?;
            self.replaced.hold(place, found);
            return Ok(());
        }
        match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::EXCHANGE) {
            // Ours is already gone from there, so theirs can't be swapped back.
            Err(Errno::NOENT) => {
                let _ = renameat_with(parent, &self.making, parent, place.name(), RenameFlags::NOREPLACE);
            }
            done => done?,
        }
        // Ours may have been edited in between.
        if let Ok(back) = self.made(parent)
            && PathStamp::of(&back.attributes) != ours
        {
            self.replaced.keep(place, &back)?;
        }
        self.drop_leftover(parent)?;
        Err(RestoreRefusal::Edited)
    }

    /// A new file with the temporary name.
    fn create(&self, parent: &OwnedFd) -> Result<OwnedFd, ExportRefusal> {
        self.drop_leftover(parent)?;
        let flags = WRITE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(parent, &self.making, flags, Mode::RUSR | Mode::WUSR)?)
    }

    /// The entry with the temporary name.
    fn made(&self, parent: &OwnedFd) -> Result<PathHandle, Errno> {
        PathHandle::at(parent, &self.making)
    }

    /// The paths of replaced files that were still written to, and what became of those writes.
    pub(super) fn written_late(&mut self) -> Vec<(ExportPath, String)> {
        while let Some((place, found)) = self.replaced.held.pop_front() {
            self.replaced.let_go(place, &found);
        }
        std::mem::take(&mut self.replaced.late)
    }

    fn copy(&self, was: &OriginalFile, mut to: File) -> Result<(), ExportRefusal> {
        let mut from = open_original(self.record, was)?;
        if file_space::share_bytes(&to, &from).is_err() {
            io::copy(&mut from, &mut to)?;
        }
        Ok(())
    }

    /// Another name that the file still has in the folder. The inode alone may belong to a newer file, and its bytes
    /// may be the remote's.
    fn other_name(&self, was: &OriginalFile) -> Result<Option<ExportPath>, ExportRefusal> {
        let mut name = None;
        self.root.walk(b"", |path, attributes| {
            let same = (attributes.inode, attributes.size, attributes.modified) == identity(was);
            if same && attributes.kind == FileKind::File && same_content(self.record, was, &self.root.find(path)?)? {
                name = Some(ExportPath::parse(path)?);
            }
            Ok(name.is_none())
        })?;
        Ok(name)
    }

    fn drop_leftover(&self, parent: &OwnedFd) -> Result<(), ExportRefusal> {
        match unlinkat(parent, &self.making, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

// === impl RestoreRefusal ===

impl From<ExportRefusal> for RestoreRefusal {
    fn from(refusal: ExportRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Errno> for RestoreRefusal {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno.into())
    }
}

impl From<io::Error> for RestoreRefusal {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.into())
    }
}

// === impl ReplacedFiles ===

impl ReplacedFiles<'_> {
    fn hold(&mut self, place: &ExportPath, found: PathHandle) {
        // Nobody writes to a link. A file with other names may be written to under those, and by this revert.
        if found.attributes.kind != FileKind::File || found.attributes.links > 1 {
            return;
        }
        self.held.push_back((place.clone(), found));
        if self.held.len() > MAX_HELD
            && let Some((place, found)) = self.held.pop_front()
        {
            self.let_go(place, &found);
        }
    }

    fn let_go(&mut self, place: ExportPath, found: &PathHandle) {
        if found.current_attributes().is_ok_and(|now| PathStamp::of(&now) == PathStamp::of(&found.attributes)) {
            return;
        }
        let outcome = match self.keep(&place, found) {
            Ok(()) => WRITTEN_LATE.to_owned(),
            Err(refusal) => format!("{WRITTEN_LATE_LOST}: {refusal}"),
        };
        self.late.push((place, outcome));
    }

    fn keep(&self, place: &ExportPath, found: &PathHandle) -> Result<(), ExportRefusal> {
        if found.attributes.is_folder() {
            return Ok(());
        }
        OriginalsFolder::in_folder(&self.record.before).keep_version(self.root, place.whole(), found)
    }
}

// === impl HardLinks ===

impl HardLinks {
    fn of(record: &LeaseRecord) -> Self {
        let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
        for entry in record.entries.values() {
            // A file that lost its other names before it was kept also had several.
            if let PathBefore::File(file) = &entry.was
                && (!seen.insert(identity(file)) || file.links > 1)
            {
                several.insert(identity(file));
            }
        }
        Self { several, put_back: BTreeMap::new(), made: BTreeSet::new() }
    }
}

const fn identity(was: &OriginalFile) -> FileIdentity {
    (was.inode, was.size, was.modified)
}

pub(super) fn remove_folder(root: &ExportRoot, place: &ExportPath) -> Result<(), Errno> {
    // If its folder is gone, so is the entry.
    let Ok(parent) = root.folder(place.parent()) else { return Err(Errno::NOENT) };
    unlinkat(&parent, place.name(), AtFlags::REMOVEDIR)
}

/// Makes a folder that the remote closed accessible, before its content is checked.
pub(super) fn unlock(folder: Option<&PathHandle>) {
    let closed = |found: &&PathHandle| found.attributes.is_folder() && found.attributes.mode & 0o700 != 0o700;
    if let Some(found) = folder.filter(closed) {
        // If it fails, the entries below report it.
        let _ = found.set_mode(found.attributes.mode | 0o700);
    }
}

pub(super) fn attributes(found: &PathHandle, mode: u32, modified: FileTime) -> Result<(), ExportRefusal> {
    found.set_mode(mode)?;
    Ok(set_times(found, None, Some(modified))?)
}
