//! Single steps of a revert, each through the handle of the folder it happens in.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    os::fd::OwnedFd,
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

/// Files that had several names.
pub(super) struct Twins {
    several: BTreeSet<Identity>,
    put_back: BTreeMap<Identity, Place>,
    /// The inodes of files that this revert made. One may be that of a file which is gone, and then is no name of it.
    made: BTreeSet<u64>,
}

/// Inode, size and modification time: an inode alone may be used again for another file.
type Identity = (u64, u64, Moment);

/// The name under which something is made before it takes its place.
const MAKING: &str = ".attache-revert";

// === impl Twins ===

impl Twins {
    pub(super) fn of(record: &Record) -> Self {
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

pub(super) fn remove(root: &Root, place: &Place, folder: bool) -> Result<(), Errno> {
    // Where its folder is gone, it is gone with it.
    let Ok(parent) = root.folder(place.parent()) else { return Err(Errno::NOENT) };
    let flags = if folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    unlinkat(&parent, place.name(), flags)
}

/// Makes the folder if it is missing, open for what goes into it; its mode and times come last.
pub(super) fn folder(root: &Root, place: &Place, mode: u32) -> Result<(), Refusal> {
    let parent = root.folder(place.parent())?;
    match mkdirat(&parent, place.name(), Mode::from_raw_mode(0o700)) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => {
            let found = root.look(place.whole())?;
            Ok(rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode | 0o700))?)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Lets us into a folder that the remote closed, before what is below it is looked at.
pub(super) fn unlock(folder: Option<&Found>) {
    let closed = |found: &&Found| found.attributes.is_folder() && found.attributes.mode & 0o700 != 0o700;
    if let Some(found) = folder.filter(closed) {
        // Where it fails, what is below says so.
        let _ = rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(found.attributes.mode | 0o700));
    }
}

pub(super) fn link(root: &Root, place: &Place, target: &[u8], modified: Moment) -> Result<(), Refusal> {
    let parent = root.folder(place.parent())?;
    drop_leftover(&parent)?;
    symlinkat(target, &parent, MAKING)?;
    renameat(&parent, MAKING, &parent, place.name())?;
    Ok(set_times(&root.look(place.whole())?, None, Some(modified))?)
}

/// Those that were one file become one file again.
pub(super) fn file(
    root: &Root,
    record: &Record,
    place: &Place,
    was: &KeptFile,
    twins: &mut Twins,
) -> Result<(), Refusal> {
    let there = root.look_maybe(place.whole())?;
    // A link may have been given the inode of a file that is gone.
    let is_same = |now: &Attributes| now.inode == was.inode && now.kind == Kind::File && was.links > 1;
    let same = there.filter(|there| is_same(&there.attributes));
    let twin = match twins.put_back.get(&identity(was)) {
        Some(twin) => Some(twin.clone()),
        None if same.is_none() && twins.several.contains(&identity(was)) && !twins.made.contains(&was.inode) => {
            other_name(root, record, was)?
        }
        None => None,
    };
    if let Some(twin) = twin {
        let (from, to) = (root.folder(twin.parent())?, root.folder(place.parent())?);
        drop_leftover(&to)?;
        linkat(&from, twin.name(), &to, MAKING, AtFlags::empty())?;
        renameat(&to, MAKING, &to, place.name())?;
        // Nothing is renamed when both already are the same file.
        return drop_leftover(&to);
    }
    twins.put_back.insert(identity(was), place.clone());
    if let Some(found) = same {
        // It still is the file of its other names: it changes where it is.
        copy(record, was, File::from(found.reopen(OFlags::WRONLY | OFlags::TRUNC)?))?;
        return attributes(&found, was.mode, was.modified);
    }
    let parent = root.folder(place.parent())?;
    drop_leftover(&parent)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&parent, MAKING, flags, Mode::RUSR | Mode::WUSR)?;
    copy(record, was, File::from(made.try_clone()?))?;
    let made = Found::of(made)?;
    twins.made.insert(made.attributes.inode);
    attributes(&made, was.mode, was.modified)?;
    Ok(renameat(&parent, MAKING, &parent, place.name())?)
}

fn copy(record: &Record, was: &KeptFile, mut to: File) -> Result<(), Refusal> {
    let mut from = kept(record, was)?;
    if rustix::fs::ioctl_ficlone(&to, &from).is_err() {
        io::copy(&mut from, &mut to)?;
    }
    Ok(())
}

const fn identity(was: &KeptFile) -> Identity {
    (was.inode, was.size, was.modified)
}

/// Another name that the file still has in the folder. Its inode alone may be that of a newer file, and its bytes may be
/// the remote's.
fn other_name(root: &Root, record: &Record, was: &KeptFile) -> Result<Option<Place>, Refusal> {
    let mut name = None;
    root.walk(b"", |path, attributes| {
        let same = (attributes.inode, attributes.size, attributes.modified) == identity(was);
        if same && attributes.kind == Kind::File && same_content(record, was, &root.look(path)?)? {
            name = Some(Place::parse(path)?);
        }
        Ok(name.is_none())
    })?;
    Ok(name)
}

pub(super) fn attributes(found: &Found, mode: u32, modified: Moment) -> Result<(), Refusal> {
    rustix::fs::chmod(found.proc_path(), Mode::from_raw_mode(mode))?;
    Ok(set_times(found, None, Some(modified))?)
}

/// Of a revert that was killed.
fn drop_leftover(parent: &OwnedFd) -> Result<(), Refusal> {
    match unlinkat(parent, MAKING, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
