//! Single steps of a revert, each through the handle of the folder it happens in.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, linkat, mkdirat, openat, renameat, renameat_with, symlinkat, unlinkat},
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

/// Puts back one thing after the other.
pub(super) struct RestoreSteps<'a> {
    root: &'a ExportRoot,
    record: &'a LeaseRecord,
    /// The name under which something is made before it takes its place. It is of this record alone: another revert does
    /// not meet it, and the next of the same record clears away what a killed one left.
    making: String,
    twins: HardLinks,
    taken: Taken<'a>,
}

/// Why something is not put back.
#[derive(Debug)]
pub(super) enum NotRestored {
    /// Somebody here changed it after it was looked at. What they made of it is where they left it.
    Edited,
    Refused(ExportRefusal),
}

/// Files that lost their places, held for a while: a program that had one open may write into it still.
struct Taken<'a> {
    root: &'a ExportRoot,
    record: &'a LeaseRecord,
    held: VecDeque<(ExportPath, PathHandle)>,
    /// Paths of those that were written into, and what to say of it.
    late: Vec<(ExportPath, String)>,
}

/// How many are held at a time.
const MAX_HELD: usize = 16;
const WRITTEN_LATE: &str =
    "a program here still wrote into it after it was put back; what it wrote is kept with the originals";
const WRITTEN_LATE_LOST: &str = "a program here still wrote into it after it was put back, and that could not be kept";

/// Files that had several names.
struct HardLinks {
    several: BTreeSet<FileIdentity>,
    put_back: BTreeMap<FileIdentity, ExportPath>,
    /// The inodes of files that this revert made. One may be that of a file which is gone, and then is no name of it.
    made: BTreeSet<u64>,
}

/// Inode, size and modification time: an inode alone may be used again for another file.
type FileIdentity = (u64, u64, FileTime);

// === impl RestoreSteps ===

impl<'a> RestoreSteps<'a> {
    pub(super) fn new(root: &'a ExportRoot, record: &'a LeaseRecord) -> Self {
        let (device, inode) = fs::metadata(&record.before).map_or((0, 0), |before| (before.dev(), before.ino()));
        let making = format!(".attache-revert-{device:x}-{inode:x}");
        let taken = Taken { root, record, held: VecDeque::new(), late: Vec::new() };
        Self { root, record, making, twins: HardLinks::of(record), taken }
    }

    /// Makes the folder if it is missing, open for what goes into it; its mode and times come last.
    pub(super) fn folder(&self, place: &ExportPath, mode: u32) -> Result<(), ExportRefusal> {
        let parent = self.root.folder(place.parent())?;
        match mkdirat(&parent, place.name(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let found = self.root.find(place.whole())?;
                Ok(rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode | 0o700))?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn link(
        &mut self,
        place: &ExportPath,
        target: &[u8],
        modified: FileTime,
        judged: Option<&FileAttributes>,
    ) -> Result<(), NotRestored> {
        let parent = self.root.folder(place.parent())?;
        self.drop_leftover(&parent)?;
        symlinkat(target, &parent, &self.making)?;
        set_times(&self.made(&parent)?, None, Some(modified))?;
        self.take_place(&parent, place, judged)
    }

    /// Those that were one file become one file again.
    pub(super) fn file(
        &mut self,
        place: &ExportPath,
        was: &OriginalFile,
        judged: Option<&FileAttributes>,
    ) -> Result<(), NotRestored> {
        let there = self.root.find_optional(place.whole())?;
        // A link may have been given the inode of a file that is gone.
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
            // It still is the file of its other names: it changes where it is.
            let file = found.reopen(OFlags::WRONLY)?;
            if judged.map(PathStamp::of) != Some(PathStamp::of(&attributes_of(&file)?)) {
                return Err(NotRestored::Edited);
            }
            rustix::fs::ftruncate(&file, 0)?;
            self.copy(was, File::from(file))?;
            return Ok(attributes(&found, was.mode, was.modified)?);
        }
        let parent = self.root.folder(place.parent())?;
        self.drop_leftover(&parent)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&parent, &self.making, flags, Mode::RUSR | Mode::WUSR)?;
        self.copy(was, File::from(made.try_clone()?))?;
        let made = PathHandle::of(made)?;
        self.twins.made.insert(made.attributes.inode);
        attributes(&made, was.mode, was.modified)?;
        self.take_place(&parent, place, judged)
    }

    /// Removes a file or link, unless it is another by now.
    pub(super) fn remove(&mut self, place: &ExportPath, judged: &FileAttributes) -> Result<(), NotRestored> {
        // Where its folder is gone, it is gone with it.
        let Ok(parent) = self.root.folder(place.parent()) else { return Ok(()) };
        self.drop_leftover(&parent)?;
        match renameat(&parent, place.name(), &parent, &self.making) {
            Err(Errno::NOENT) => return Ok(()),
            done => done?,
        }
        let found = self.made(&parent)?;
        if PathStamp::of(&found.attributes) == PathStamp::of(judged) {
            self.drop_leftover(&parent)?;
            self.taken.hold(place, found);
            return Ok(());
        }
        match renameat_with(&parent, &self.making, &parent, place.name(), RenameFlags::NOREPLACE) {
            // Somebody made yet another.
            Err(Errno::EXIST) => {
                self.taken.keep(place, &found)?;
                self.drop_leftover(&parent)?;
            }
            done => done?,
        }
        Err(NotRestored::Edited)
    }

    /// Gives what was made its place in one step with taking out what is there, and looks at that only then: what somebody
    /// here did up to this moment is seen, and put back.
    fn take_place(
        &mut self,
        parent: &OwnedFd,
        place: &ExportPath,
        judged: Option<&FileAttributes>,
    ) -> Result<(), NotRestored> {
        let Some(judged) = judged else {
            return match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {
                    self.drop_leftover(parent)?;
                    Err(NotRestored::Edited)
                }
                done => Ok(done?),
            };
        };
        let made = self.made(parent)?.attributes;
        let ours = PathStamp::of(&made);
        // Both may be names of one file already.
        let there = self.root.find_optional(place.whole())?;
        if there.is_some_and(|there| there.attributes.inode == made.inode) {
            return Ok(self.drop_leftover(parent)?);
        }
        match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => {
                self.drop_leftover(parent)?;
                return Err(NotRestored::Edited);
            }
            // A file system that cannot: it is looked at as late as possible.
            Err(Errno::INVAL | Errno::NOSYS) => {
                let now = self.root.find_optional(place.whole())?;
                if now.as_ref().map(|now| PathStamp::of(&now.attributes)) != Some(PathStamp::of(judged)) {
                    self.drop_leftover(parent)?;
                    return Err(NotRestored::Edited);
                }
                renameat(parent, &self.making, parent, place.name())?;
                if let Some(now) = now {
                    self.taken.hold(place, now);
                }
                return Ok(());
            }
            done => done?,
        }
        let found = self.made(parent)?;
        if PathStamp::of(&found.attributes) == PathStamp::of(judged) {
            self.drop_leftover(parent)?;
            self.taken.hold(place, found);
            return Ok(());
        }
        match renameat_with(parent, &self.making, parent, place.name(), RenameFlags::EXCHANGE) {
            // Ours is gone from there already, so theirs has no place to go back to.
            Err(Errno::NOENT) => {
                let _ = renameat_with(parent, &self.making, parent, place.name(), RenameFlags::NOREPLACE);
            }
            done => done?,
        }
        // Somebody may have edited ours in between.
        if let Ok(back) = self.made(parent)
            && PathStamp::of(&back.attributes) != ours
        {
            self.taken.keep(place, &back)?;
        }
        self.drop_leftover(parent)?;
        Err(NotRestored::Edited)
    }

    /// What has the name under which things are made.
    fn made(&self, parent: &OwnedFd) -> Result<PathHandle, Errno> {
        openat(parent, &self.making, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
            .and_then(PathHandle::of)
    }

    /// The paths of files that somebody wrote into after they had lost their places, and what became of what they wrote.
    pub(super) fn written_late(&mut self) -> Vec<(ExportPath, String)> {
        while let Some((place, found)) = self.taken.held.pop_front() {
            self.taken.let_go(place, &found);
        }
        std::mem::take(&mut self.taken.late)
    }

    fn copy(&self, was: &OriginalFile, mut to: File) -> Result<(), ExportRefusal> {
        let mut from = open_original(self.record, was)?;
        if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
            io::copy(&mut from, &mut to)?;
        }
        Ok(())
    }

    /// Another name that the file still has in the folder. Its inode alone may be that of a newer file, and its bytes may
    /// be the remote's.
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

// === impl NotRestored ===

impl From<ExportRefusal> for NotRestored {
    fn from(refusal: ExportRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Errno> for NotRestored {
    fn from(errno: Errno) -> Self {
        Self::Refused(errno.into())
    }
}

impl From<io::Error> for NotRestored {
    fn from(error: io::Error) -> Self {
        Self::Refused(error.into())
    }
}

// === impl Taken ===

impl Taken<'_> {
    fn hold(&mut self, place: &ExportPath, found: PathHandle) {
        // One that has other names is written into for those, and by this revert.
        if found.attributes.links > 1 {
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
        if attributes_of(found).is_ok_and(|now| PathStamp::of(&now) == PathStamp::of(&found.attributes)) {
            return;
        }
        let said = match self.keep(&place, found) {
            Ok(()) => WRITTEN_LATE.to_owned(),
            Err(refusal) => format!("{WRITTEN_LATE_LOST}: {refusal}"),
        };
        self.late.push((place, said));
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
            // One that lost its other names before it was kept had several, too.
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
    // Where its folder is gone, it is gone with it.
    let Ok(parent) = root.folder(place.parent()) else { return Err(Errno::NOENT) };
    unlinkat(&parent, place.name(), AtFlags::REMOVEDIR)
}

/// Lets us into a folder that the remote closed, before what is below it is looked at.
pub(super) fn unlock(folder: Option<&PathHandle>) {
    let closed = |found: &&PathHandle| found.attributes.is_folder() && found.attributes.mode & 0o700 != 0o700;
    if let Some(found) = folder.filter(closed) {
        // Where it fails, what is below says so.
        let _ = rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(found.attributes.mode | 0o700));
    }
}

pub(super) fn attributes(found: &PathHandle, mode: u32, modified: FileTime) -> Result<(), ExportRefusal> {
    rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode))?;
    Ok(set_times(found, None, Some(modified))?)
}
