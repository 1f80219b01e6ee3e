//! Creates, moves and removes names in the tree.

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags, linkat, mkdirat, renameat, renameat_with, symlinkat, unlinkat},
    io::Errno,
};

use super::{
    Export, ExportRefusal, ExportShared, FileKind, LinkPolicy, OpenWrite,
    audit::ExportOperation,
    change::{GUARDED, ROOT, SPECIAL, WITHHELD},
    git_guard::{area, guarded, inside, is_repository, leads_into_repository, trusted_git_file},
    held,
    links::leaves,
    originals::{OriginalsStore, PendingChange},
    path::{ExportPath, join},
    root::{PathHandle, entries},
};

/// Whether a rename can replace an existing entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplaceMode {
    Never,
    Always,
}

/// A path and its new path.
type PathMove = (Vec<u8>, Vec<u8>);

const HOLDS_WITHHELD: ExportRefusal =
    ExportRefusal::Denied("the folder contains entries that are not shared; move its other contents one by one");
const LEAVES: ExportRefusal = ExportRefusal::Denied("a symbolic link created here must stay inside the shared folder");

impl Export {
    pub fn make_dir(&self, path: &[u8], mode: u32) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::MakeDir, path, None, None, |keeper| {
            let place = ExportPath::parse(path)?;
            self.0.make(keeper, &place, true, |inner| {
                let parent = inner.root.folder(place.parent())?;
                Ok(mkdirat(&parent, place.name(), Mode::from_raw_mode(mode & 0o777))?)
            })
        })
    }

    /// `target` is stored as given, and never followed here.
    pub fn symlink(&self, target: &[u8], path: &[u8]) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::Symlink, path, Some(target), None, |keeper| {
            let place = ExportPath::parse(path)?;
            if target.is_empty() || target.contains(&0) {
                return Err(ExportRefusal::Invalid);
            }
            if inside(place.whole()).is_some() {
                return Err(GUARDED);
            }
            if leads_into_repository(target) {
                return Err(GUARDED);
            }
            self.0.admit_link_name(place.whole())?;
            let target = &self.0.plain_target(target, place.parent());
            if self.0.links == LinkPolicy::Inside && leaves(target, place.parent()) {
                return Err(LEAVES);
            }
            self.0.make(keeper, &place, false, |inner| {
                let parent = inner.root.folder(place.parent())?;
                Ok(symlinkat(&target[..], &parent, place.name())?)
            })
        })
    }

    /// A second name for a file that the lease shows.
    pub fn hard_link(&self, from: &[u8], to: &[u8]) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::HardLink, from, Some(to), None, |keeper| {
            let (from, to) = (ExportPath::parse(from)?, ExportPath::parse(to)?);
            let found = self.0.find_shown(&from)?;
            self.0.admit(from.whole(), false)?;
            match found.attributes.kind {
                FileKind::File => {}
                FileKind::Folder => return Err(ExportRefusal::IsADirectory),
                FileKind::Link => return Err(ExportRefusal::Unsupported),
                FileKind::Special => return Err(SPECIAL),
            }
            self.0.admit_second_name(from.whole(), to.whole())?;
            self.0.admit_link_name(from.whole())?;
            self.0.admit_link_name(to.whole())?;
            self.0.admit_name(keeper, &from, &to, &found)?;
            self.0.make(keeper, &to, false, |inner| {
                let (old, new) = (inner.root.folder(from.parent())?, inner.root.folder(to.parent())?);
                Ok(linkat(&old, from.name(), &new, to.name(), AtFlags::empty())?)
            })
        })
    }

    pub fn remove_dir(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        self.remove(path, ExportOperation::RemoveDir)
    }

    /// A file or a symbolic link.
    pub fn remove_file(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        self.remove(path, ExportOperation::RemoveFile)
    }

    fn remove(&self, path: &[u8], op: ExportOperation) -> Result<(), ExportRefusal> {
        self.0.change(op, path, None, None, |keeper| {
            let place = ExportPath::parse(path)?;
            let inner = &self.0;
            let found = inner.find_shown(&place)?;
            let flags = match (found.attributes.kind, op) {
                _ if place.is_root() => return Err(ROOT),
                (FileKind::Special, _) => return Err(SPECIAL),
                (FileKind::Folder, ExportOperation::RemoveDir) => AtFlags::REMOVEDIR,
                (FileKind::Folder, _) => return Err(ExportRefusal::IsADirectory),
                (_, ExportOperation::RemoveDir) => return Err(ExportRefusal::NotADirectory),
                _ => AtFlags::empty(),
            };
            inner.admit(place.whole(), found.attributes.is_folder())?;
            inner.admit_gone(place.whole())?;
            inner.admit_stored(keeper, place.whole())?;
            let parent = inner.root.folder(place.parent())?;
            keeper.keep_original(&inner.root, place.whole(), Some(&found), PendingChange::LosesName, &|| {
                inner.check_live()
            })?;
            keeper.keep_folder(&inner.root, place.parent())?;
            let done = unlinkat(&parent, place.name(), flags);
            keeper.record_after(&inner.root, place.whole());
            keeper.record_after(&inner.root, place.parent());
            Ok(done?)
        })
    }

    pub fn rename(&self, from: &[u8], to: &[u8], replace: ReplaceMode) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::Rename, from, Some(to), None, |keeper| {
            self.0.rename(keeper, &ExportPath::parse(from)?, &ExportPath::parse(to)?, replace)
        })
    }
}

// === impl ExportShared ===

impl ExportShared {
    /// Gives a new entry a name.
    fn make(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        folder: bool,
        make: impl FnOnce(&Self) -> Result<(), ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        if place.is_root() {
            return Err(ExportRefusal::Exists);
        }
        self.admit(place.whole(), folder)?;
        self.admit_new(place.whole())?;
        if self.root.find_optional(place.whole())?.is_some() {
            return Err(ExportRefusal::Exists);
        }
        self.root.folder(place.parent())?;
        keeper.keep_original(&self.root, place.whole(), None, PendingChange::LosesName, &|| self.check_live())?;
        keeper.keep_folder(&self.root, place.parent())?;
        self.usage.file()?;
        make(self).inspect_err(|_| self.usage.release_file())?;
        keeper.record_after(&self.root, place.whole());
        keeper.record_after(&self.root, place.parent());
        Ok(())
    }

    fn rename(
        &self,
        keeper: &mut OriginalsStore,
        from: &ExportPath,
        to: &ExportPath,
        replace: ReplaceMode,
    ) -> Result<(), ExportRefusal> {
        if from.is_root() || to.is_root() {
            return Err(ROOT);
        }
        let found = self.find_shown(from)?;
        let folder = found.attributes.is_folder();
        self.admit(from.whole(), folder)?;
        self.admit_gone(from.whole())?;
        self.admit(to.whole(), folder)?;
        if is_repository(from.whole()) || is_repository(to.whole()) {
            return Err(GUARDED);
        }
        if to.is_below(from) {
            return Err(ExportRefusal::Invalid);
        }
        self.check_link(from.whole(), to.whole(), &found)?;
        self.admit_stored(keeper, from.whole())?;
        self.admit_stored(keeper, to.whole())?;
        if area(from.whole()).map(|(git, _)| git) != area(to.whole()).map(|(git, _)| git)
            || (folder && area(from.whole()) != area(to.whole()))
        {
            return Err(GUARDED);
        }
        if !folder {
            self.admit_name(keeper, from, to, &found)?;
        }
        let replaced = self.root.find_optional(to.whole())?;
        if replaced.is_none() {
            self.admit_new(to.whole())?;
        }
        if let Some(there) = &replaced {
            // A name that is free for a file may still be that of a hidden folder.
            self.admit(to.whole(), there.attributes.is_folder())?;
            match (there.attributes.kind, folder) {
                _ if replace == ReplaceMode::Never => return Err(ExportRefusal::Exists),
                (FileKind::Special, _) => return Err(SPECIAL),
                (FileKind::Folder, false) => return Err(ExportRefusal::IsADirectory),
                (kind, true) if kind != FileKind::Folder => return Err(ExportRefusal::NotADirectory),
                _ => {}
            }
            if there.attributes.inode == found.attributes.inode && there.attributes.device == found.attributes.device {
                // Two names of one file: the kernel leaves both, as POSIX requires.
                return Ok(());
            }
            // Checked before originals are kept: a non-empty folder can't be replaced.
            if folder && entries(there.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?.next().is_some() {
                return Err(ExportRefusal::NotEmpty);
            }
        }
        let moved = match found.attributes.kind {
            FileKind::Special => return Err(SPECIAL),
            FileKind::Folder => self.moved_along(from.whole(), to.whole())?,
            FileKind::File | FileKind::Link => Vec::new(),
        };
        let (old, new) = (self.root.folder(from.parent())?, self.root.folder(to.parent())?);
        let go_on = || self.check_live();
        keeper.keep_original(&self.root, from.whole(), Some(&found), PendingChange::LosesName, &go_on)?;
        keeper.keep_original(&self.root, to.whole(), replaced.as_ref(), PendingChange::LosesName, &go_on)?;
        for (before, after) in &moved {
            let Some(found) = self.root.find_optional(before)? else { continue };
            keeper.keep_original(&self.root, before, Some(&found), PendingChange::LosesName, &go_on)?;
            let there = self.root.find_optional(after)?;
            keeper.keep_original(&self.root, after, there.as_ref(), PendingChange::LosesName, &go_on)?;
        }
        keeper.keep_folder(&self.root, from.parent())?;
        keeper.keep_folder(&self.root, to.parent())?;
        go_on()?;
        let done = match replace {
            ReplaceMode::Always => renameat(&old, from.name(), &new, to.name()),
            ReplaceMode::Never => match renameat_with(&old, from.name(), &new, to.name(), RenameFlags::NOREPLACE) {
                // The file system doesn't support it. That nothing is there was checked above.
                Err(Errno::INVAL) => renameat(&old, from.name(), &new, to.name()),
                done => done,
            },
        };
        if done.is_ok() {
            self.follow_writers(from.whole(), to.whole());
        }
        for path in [from.whole(), to.whole(), from.parent(), to.parent()] {
            keeper.record_after(&self.root, path);
        }
        for path in moved.iter().flat_map(|(before, after)| [before, after]) {
            keeper.record_after(&self.root, path);
        }
        Ok(done?)
    }

    /// Everything below a moving folder, with its new path. None of it may be hidden or become hidden or visible by the
    /// move, and nothing may get to or away from places where git runs programs.
    fn moved_along(&self, from: &[u8], to: &[u8]) -> Result<Vec<PathMove>, ExportRefusal> {
        let mut moved = Vec::new();
        self.root.walk(from, |path, attributes| {
            self.check_live()?;
            let after = join(to, &path[from.len() + 1..]);
            let folder = attributes.is_folder();
            if attributes.kind == FileKind::Special || attributes.mount_root {
                return Err(SPECIAL);
            }
            if !self.filter.shows(path, folder) {
                return Err(HOLDS_WITHHELD);
            }
            if !self.filter.shows(&after, folder) {
                return Err(WITHHELD);
            }
            // What git trusts is checked under the name that it gets on its own.
            let becomes_trusted = trusted_git_file(&after).is_some()
                && inside(path).map(|(_, names)| names) != inside(&after).map(|(_, names)| names);
            if guarded(path) != guarded(&after) || becomes_trusted {
                return Err(GUARDED);
            }
            if attributes.kind == FileKind::File
                && let Some(file) = self.root.find_optional(path)?
            {
                self.admit_unmasked(path, &after, &file)?;
            }
            if attributes.kind == FileKind::Link
                && let Some(link) = self.root.find_optional(path)?
            {
                self.check_link(path, &after, &link)?;
            }
            moved.push((path.to_vec(), after));
            Ok(true)
        })?;
        Ok(moved)
    }

    /// A link that stays inside must not lead out after a move.
    fn check_link(&self, before: &[u8], after: &[u8], link: &PathHandle) -> Result<(), ExportRefusal> {
        if link.attributes.kind != FileKind::Link || self.links == LinkPolicy::Any {
            return Ok(());
        }
        let target = link.target()?;
        let leaves =
            |path: &[u8]| leaves(&target, ExportPath::parse(path).as_ref().map_or(b"", |place| place.parent()));
        if leaves(after) && !leaves(before) { Err(LEAVES) } else { Ok(()) }
    }

    /// Updates the paths of files that are open for writing.
    fn follow_writers(&self, from: &[u8], to: &[u8]) {
        for OpenWrite { path, .. } in held(&self.writing).values_mut() {
            if path == from {
                *path = to.to_vec();
            } else if path.starts_with(from) && path.get(from.len()) == Some(&b'/') {
                *path = join(to, &path[from.len() + 1..]);
            }
        }
    }
}
