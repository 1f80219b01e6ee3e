//! Single steps of a revert, each through the handle of the folder it happens in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::MetadataExt as _},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, linkat, mkdirat, openat, renameat, symlinkat, unlinkat},
    io::Errno,
};

use super::compare::{kept, same_content};
use crate::export::{
    Attributes, KeptFile, Kind, Moment, Record, Refusal, Was,
    path::Place,
    root::{Found, Root},
    set_times,
};

/// Puts back one thing after the other.
pub(super) struct Steps<'a> {
    root: &'a Root,
    record: &'a Record,
    /// The name under which something is made before it takes its place. It is of this record alone: another revert does
    /// not meet it, and the next of the same record clears away what a killed one left.
    making: String,
    twins: Twins,
}

/// Files that had several names.
struct Twins {
    several: BTreeSet<Identity>,
    put_back: BTreeMap<Identity, Place>,
    /// The inodes of files that this revert made. One may be that of a file which is gone, and then is no name of it.
    made: BTreeSet<u64>,
}

/// Inode, size and modification time: an inode alone may be used again for another file.
type Identity = (u64, u64, Moment);

// === impl Steps ===

impl<'a> Steps<'a> {
    pub(super) fn new(root: &'a Root, record: &'a Record) -> Self {
        let (device, inode) = fs::metadata(&record.before).map_or((0, 0), |before| (before.dev(), before.ino()));
        let making = format!(".attache-revert-{device:x}-{inode:x}");
        Self { root, record, making, twins: Twins::of(record) }
    }

    /// Makes the folder if it is missing, open for what goes into it; its mode and times come last.
    pub(super) fn folder(&self, place: &Place, mode: u32) -> Result<(), Refusal> {
        let parent = self.root.folder(place.parent())?;
        match mkdirat(&parent, place.name(), Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => {
                let found = self.root.look(place.whole())?;
                Ok(rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode | 0o700))?)
            }
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn link(&self, place: &Place, target: &[u8], modified: Moment) -> Result<(), Refusal> {
        let parent = self.root.folder(place.parent())?;
        self.drop_leftover(&parent)?;
        symlinkat(target, &parent, &self.making)?;
        renameat(&parent, &self.making, &parent, place.name())?;
        Ok(set_times(&self.root.look(place.whole())?, None, Some(modified))?)
    }

    /// Those that were one file become one file again.
    pub(super) fn file(&mut self, place: &Place, was: &KeptFile) -> Result<(), Refusal> {
        let there = self.root.look_maybe(place.whole())?;
        // A link may have been given the inode of a file that is gone.
        let is_same = |now: &Attributes| now.inode == was.inode && now.kind == Kind::File && was.links > 1;
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
            renameat(&to, &self.making, &to, place.name())?;
            // Nothing is renamed when both already are the same file.
            return self.drop_leftover(&to);
        }
        self.twins.put_back.insert(identity(was), place.clone());
        if let Some(found) = same {
            // It still is the file of its other names: it changes where it is.
            self.copy(was, File::from(found.reopen(OFlags::WRONLY | OFlags::TRUNC)?))?;
            return attributes(&found, was.mode, was.modified);
        }
        let parent = self.root.folder(place.parent())?;
        self.drop_leftover(&parent)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(&parent, &self.making, flags, Mode::RUSR | Mode::WUSR)?;
        self.copy(was, File::from(made.try_clone()?))?;
        let made = Found::of(made)?;
        self.twins.made.insert(made.attributes.inode);
        attributes(&made, was.mode, was.modified)?;
        Ok(renameat(&parent, &self.making, &parent, place.name())?)
    }

    fn copy(&self, was: &KeptFile, mut to: File) -> Result<(), Refusal> {
        let mut from = kept(self.record, was)?;
        if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
            io::copy(&mut from, &mut to)?;
        }
        Ok(())
    }

    /// Another name that the file still has in the folder. Its inode alone may be that of a newer file, and its bytes may
    /// be the remote's.
    fn other_name(&self, was: &KeptFile) -> Result<Option<Place>, Refusal> {
        let mut name = None;
        self.root.walk(b"", |path, attributes| {
            let same = (attributes.inode, attributes.size, attributes.modified) == identity(was);
            if same && attributes.kind == Kind::File && same_content(self.record, was, &self.root.look(path)?)? {
                name = Some(Place::parse(path)?);
            }
            Ok(name.is_none())
        })?;
        Ok(name)
    }

    fn drop_leftover(&self, parent: &OwnedFd) -> Result<(), Refusal> {
        match unlinkat(parent, &self.making, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

// === impl Twins ===

impl Twins {
    fn of(record: &Record) -> Self {
        let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
        for entry in record.entries.values() {
            // One that lost its other names before it was kept had several, too.
            if let Was::File(file) = &entry.was
                && (!seen.insert(identity(file)) || file.links > 1)
            {
                several.insert(identity(file));
            }
        }
        Self { several, put_back: BTreeMap::new(), made: BTreeSet::new() }
    }
}

const fn identity(was: &KeptFile) -> Identity {
    (was.inode, was.size, was.modified)
}

pub(super) fn remove(root: &Root, place: &Place, folder: bool) -> Result<(), Errno> {
    // Where its folder is gone, it is gone with it.
    let Ok(parent) = root.folder(place.parent()) else { return Err(Errno::NOENT) };
    let flags = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&parent, place.name(), flags)
}

/// Lets us into a folder that the remote closed, before what is below it is looked at.
pub(super) fn unlock(folder: Option<&Found>) {
    let closed = |found: &&Found| found.attributes.is_folder() && found.attributes.mode & 0o700 != 0o700;
    if let Some(found) = folder.filter(closed) {
        // Where it fails, what is below says so.
        let _ = rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(found.attributes.mode | 0o700));
    }
}

pub(super) fn attributes(found: &Found, mode: u32, modified: Moment) -> Result<(), Refusal> {
    rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode))?;
    Ok(set_times(found, None, Some(modified))?)
}
