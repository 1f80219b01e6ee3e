//! Puts a complete entry in the place of another one, or takes one away, in a single step, and only if what is there is what the
//! caller looked at. For changes that were made elsewhere, in a copy.

use std::{
    fs::File,
    io::{self, Seek as _},
    os::fd::OwnedFd,
    path::Path,
};

use attache_os::{file_space, path_handle::WRITE};
use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, linkat, openat, renameat, renameat_with, symlinkat, unlinkat},
    io::Errno,
};

use super::{
    Export, ExportRefusal, ExportShared, FileAttributes, FileKind, LinkPolicy, PathStamp,
    audit::ExportOperation,
    change::{ROOT, SPECIAL},
    git_guard::inside,
    links::leaves,
    originals::{OriginalsStore, PendingChange},
    path::{ExportPath, join},
    root::{ExportRoot, PathHandle},
};

/// What is put at a path.
pub(crate) enum ReplacementContent<'a> {
    /// The bytes of another file.
    File {
        content: &'a File,
        mode: u32,
    },
    Text {
        content: &'a [u8],
        mode: u32,
    },
    Link(&'a [u8]),
}

/// A new entry that takes its place.
struct EntrySwap<'a> {
    root: &'a ExportRoot,
    parent: &'a OwnedFd,
    place: &'a ExportPath,
    making: &'a str,
    /// The new entry.
    made: FileAttributes,
    /// Where something goes that must not get lost.
    kept: &'a Path,
}

const LEAVES: ExportRefusal = ExportRefusal::Denied("a symbolic link created here must stay inside the folder");
const GIT_LINK: ExportRefusal = ExportRefusal::Denied("a symbolic link in .git could redirect git");

impl Export {
    /// `judged` is what the caller found at the path. If it is something else by now, nothing is done. `making` is the name
    /// that the new entry has before it is complete, beside its place.
    pub(crate) fn put(
        &self,
        path: &[u8],
        new: &ReplacementContent<'_>,
        judged: Option<&FileAttributes>,
        making: &str,
    ) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::Create, path, None, None, |keeper| {
            let place = ExportPath::parse(path)?;
            self.0.put(keeper, &place, new, judged, making)
        })
    }

    /// Removes a file or link, unless it is something else by now.
    pub(crate) fn take_away(&self, path: &[u8], judged: &FileAttributes, making: &str) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::RemoveFile, path, None, None, |keeper| {
            let place = ExportPath::parse(path)?;
            self.0.take_away(keeper, &place, judged, making)
        })
    }

    /// Moves what a killed process left under the temporary name in these folders to the folder of originals.
    pub(crate) fn clear_leftovers<'a>(&self, folders: impl Iterator<Item = &'a [u8]>, making: &str, to: &Path) {
        for folder in folders {
            if let Ok(parent) = self.0.root.folder(folder) {
                clear_leftover(&parent, making, to);
            }
        }
    }
}

// === impl ExportShared ===

impl ExportShared {
    fn put(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        new: &ReplacementContent<'_>,
        judged: Option<&FileAttributes>,
        making: &str,
    ) -> Result<(), ExportRefusal> {
        if place.is_root() {
            return Err(ROOT);
        }
        self.admit(place.whole(), false)?;
        let there = self.judged(place, judged)?;
        match there.as_ref().map(|there| there.attributes.kind) {
            None => self.admit_new(place.whole())?,
            Some(FileKind::Folder) => return Err(ExportRefusal::IsADirectory),
            Some(FileKind::Special) => return Err(SPECIAL),
            Some(FileKind::File | FileKind::Link) => {}
        }
        self.admit_stored(keeper, place.whole())?;
        let parent = self.root.folder(place.parent())?;
        drop_entry(&parent, making)?;
        let prepared = make(&parent, making, new).and_then(|()| {
            let made = PathHandle::at(&parent, making)?;
            if let ReplacementContent::Link(target) = new {
                if inside(place.whole()).is_some() {
                    return Err(GIT_LINK);
                }
                if self.links == LinkPolicy::Inside && leaves(target, place.parent()) {
                    return Err(LEAVES);
                }
            }
            let from = ExportPath::parse(&join(place.parent(), making.as_bytes()))?;
            self.admit_name(keeper, &from, place, &made)?;
            let go_on = || self.check_live();
            keeper.keep_original(&self.root, place.whole(), there.as_ref(), PendingChange::LosesName, &go_on)?;
            keeper.keep_folder(&self.root, place.parent())?;
            Ok(made.attributes)
        });
        let placed = match prepared {
            Ok(made) => {
                let swap = EntrySwap { root: &self.root, parent: &parent, place, making, made, kept: keeper.scratch() };
                swap.run(judged)
            }
            Err(refusal) => drop_entry(&parent, making).and(Err(refusal)),
        };
        keeper.record_after(&self.root, place.whole());
        keeper.record_after(&self.root, place.parent());
        placed
    }

    fn take_away(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        judged: &FileAttributes,
        making: &str,
    ) -> Result<(), ExportRefusal> {
        let Some(there) = self.judged(place, Some(judged))? else { return Err(ExportRefusal::Changed) };
        match there.attributes.kind {
            _ if place.is_root() => return Err(ROOT),
            FileKind::Special => return Err(SPECIAL),
            FileKind::Folder => return Err(ExportRefusal::IsADirectory),
            FileKind::File | FileKind::Link => {}
        }
        self.admit(place.whole(), false)?;
        self.admit_gone(place.whole())?;
        self.admit_stored(keeper, place.whole())?;
        let parent = self.root.folder(place.parent())?;
        drop_entry(&parent, making)?;
        let go_on = || self.check_live();
        keeper.keep_original(&self.root, place.whole(), Some(&there), PendingChange::LosesName, &go_on)?;
        keeper.keep_folder(&self.root, place.parent())?;
        renameat(&parent, place.name(), &parent, making)?;
        let is_same = PathHandle::at(&parent, making).is_ok_and(|found| is_still(&found.attributes, judged));
        let taken = if is_same {
            drop_entry(&parent, making)
        } else {
            // Another one was put there in the last moment. It goes back, unless there is yet another one.
            match renameat_with(&parent, making, &parent, place.name(), RenameFlags::NOREPLACE) {
                Err(Errno::INVAL) => renameat(&parent, making, &parent, place.name())?,
                done => done?,
            }
            Err(ExportRefusal::Changed)
        };
        keeper.record_after(&self.root, place.whole());
        keeper.record_after(&self.root, place.parent());
        taken
    }

    /// What is at the path, if that is what the caller looked at.
    fn judged(&self, place: &ExportPath, judged: Option<&FileAttributes>) -> Result<Option<PathHandle>, ExportRefusal> {
        let there = self.root.find_optional(place.whole())?;
        let is_same = match (&there, judged) {
            (None, None) => true,
            (Some(there), Some(judged)) => is_still(&there.attributes, judged),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if is_same { Ok(there) } else { Err(ExportRefusal::Changed) }
    }
}

fn is_still(now: &FileAttributes, judged: &FileAttributes) -> bool {
    PathStamp::of(now) == PathStamp::of(judged)
}

/// Makes the entry under the temporary name, complete and on the disk.
fn make(parent: &OwnedFd, making: &str, new: &ReplacementContent<'_>) -> Result<(), ExportRefusal> {
    let create = || {
        let flags = WRITE | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(parent, making, flags, Mode::RUSR | Mode::WUSR).map(File::from)
    };
    let (file, mode) = match *new {
        ReplacementContent::Link(target) => return Ok(symlinkat(target, parent, making)?),
        ReplacementContent::File { content, mode } => {
            let mut file = create()?;
            if file_space::share_bytes(&file, content).is_err() {
                let mut content = content;
                content.rewind()?;
                io::copy(&mut content, &mut file)?;
            }
            (file, mode)
        }
        ReplacementContent::Text { mut content, mode } => {
            let mut file = create()?;
            io::copy(&mut content, &mut file)?;
            (file, mode)
        }
    };
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode & 0o777))?;
    Ok(file.sync_all()?)
}

// === impl EntrySwap ===

impl EntrySwap<'_> {
    /// Swaps the new entry with the current one, and only then looks at the latter: what somebody put there up to this moment
    /// is noticed, and goes back.
    fn run(&self, judged: Option<&FileAttributes>) -> Result<(), ExportRefusal> {
        let Self { parent, place, making, .. } = self;
        let Some(judged) = judged else {
            return match renameat_with(parent, *making, parent, place.name(), RenameFlags::NOREPLACE) {
                Ok(()) => Ok(()),
                Err(Errno::EXIST) => self.give_up(ExportRefusal::Changed),
                Err(Errno::INVAL) => self.replace(None),
                Err(errno) => self.give_up(errno.into()),
            };
        };
        match self.exchange() {
            Ok(()) => {}
            Err(Errno::NOENT) => return self.give_up(ExportRefusal::Changed),
            Err(Errno::INVAL | Errno::NOSYS) => return self.replace(Some(judged)),
            Err(errno) => return self.give_up(errno.into()),
        }
        if PathHandle::at(parent, making).is_ok_and(|old| is_still(&old.attributes, judged)) {
            return drop_entry(parent, making);
        }
        let back = match self.exchange() {
            // Somebody removed ours already, so theirs can't be swapped back.
            Err(Errno::NOENT) => renameat_with(parent, *making, parent, place.name(), RenameFlags::NOREPLACE),
            done => done,
        };
        // What has the temporary name now is ours, unless somebody wrote to it, or theirs couldn't go back.
        let is_ours = PathHandle::at(parent, making).is_ok_and(|ours| is_still(&ours.attributes, &self.made));
        match back {
            Ok(()) if is_ours => self.give_up(ExportRefusal::Changed),
            _ => {
                clear_leftover(parent, making, self.kept);
                Err(ExportRefusal::Changed)
            }
        }
    }

    fn exchange(&self) -> Result<(), Errno> {
        renameat_with(self.parent, self.making, self.parent, self.place.name(), RenameFlags::EXCHANGE)
    }

    /// On a file system that can't swap: checks as late as possible.
    fn replace(&self, judged: Option<&FileAttributes>) -> Result<(), ExportRefusal> {
        let now = self.root.find_optional(self.place.whole())?;
        let is_judged = match (now.map(|now| now.attributes), judged) {
            (None, None) => true,
            (Some(now), Some(judged)) => is_still(&now, judged),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !is_judged {
            return self.give_up(ExportRefusal::Changed);
        }
        Ok(renameat(self.parent, self.making, self.parent, self.place.name())?)
    }

    fn give_up(&self, refusal: ExportRefusal) -> Result<(), ExportRefusal> {
        drop_entry(self.parent, self.making).and(Err(refusal))
    }
}

fn drop_entry(parent: &OwnedFd, name: &str) -> Result<(), ExportRefusal> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// It may be a version of somebody else that was swapped out a moment before, so it isn't just removed.
fn clear_leftover(parent: &OwnedFd, making: &str, to: &Path) {
    let Ok(found) = PathHandle::at(parent, making) else { return };
    let kept = to.join(format!("leftover-{:x}", found.attributes.inode));
    // Without a link, the file systems differ: then the name is left, and the next entry that is put there replaces it.
    match linkat(parent, making, rustix::fs::CWD, &kept, AtFlags::empty()) {
        Ok(()) | Err(Errno::EXIST) => drop(drop_entry(parent, making)),
        Err(errno) => tracing::warn!(error = %errno, "failed to remove what an interrupted change left"),
    }
}
