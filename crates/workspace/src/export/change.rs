//! The checks that every changing call goes through: read-only access, the rate limit, the end of the lease, protected
//! paths, originals, and the audit entry.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, MutexGuard, PoisonError},
};

use attache_os::path_handle::WRITE;
use rustix::{
    fs::{Timespec, Timestamps, UTIME_OMIT},
    io::Errno,
};

use super::{
    Export, ExportRefusal, ExportShared, FileAttributes, FileKind, FileTime,
    attributes::AttributeChange,
    audit::{ExportAuditEntry, ExportOperation},
    content_rules::admit_inside_log,
    git_guard::{
        REPOSITORIES, guarded, inside, is_own_index, is_repository, is_stored, part_of, run_from, trusted_git_file,
    },
    held,
    originals::{OriginalsStore, PendingChange},
    path::{ExportPath, check_length, join},
    root::PathHandle,
};

const INDEX: ExportRefusal = ExportRefusal::Denied("git's index can be replaced, but not removed");
pub(super) const GUARDED: ExportRefusal = ExportRefusal::Denied(
    "git on the host would run or follow it; below .git, a lease can only change what commits need: objects, refs, HEAD and the index",
);
const PLANTED: ExportRefusal = ExportRefusal::Denied(
    "it would turn the folder into a git repository, and git on the host would run commands from its configuration; create it elsewhere",
);
const PART: ExportRefusal =
    ExportRefusal::Denied("without it, the folder would no longer be a git repository; it can be written and replaced");
pub(super) const WITHHELD: ExportRefusal = ExportRefusal::Denied("this name is not shared");
pub(super) const SPECIAL: ExportRefusal = ExportRefusal::Denied("it is not a file, folder or symbolic link");
pub(super) const ROOT: ExportRefusal = ExportRefusal::Denied("the shared folder itself can't be changed");

impl Export {
    pub fn set_attributes(&self, path: &[u8], change: &AttributeChange) -> Result<(), ExportRefusal> {
        self.0.change(ExportOperation::SetAttributes, path, None, change.size, |keeper| {
            let place = ExportPath::parse(path)?;
            let found = self.0.find_shown(&place)?;
            if place.is_root() {
                return Err(ROOT);
            }
            self.0.alter(keeper, &place, &found, None, change)
        })
    }
}

// === impl ExportShared ===

impl ExportShared {
    /// Carries out one changing call completely, or not at all.
    pub(super) fn change<T>(
        &self,
        op: ExportOperation,
        path: &[u8],
        to: Option<&[u8]>,
        bytes: Option<u64>,
        call: impl FnOnce(&mut OriginalsStore) -> Result<T, ExportRefusal>,
    ) -> Result<T, ExportRefusal> {
        // Not recorded: the audit would grow by as much as the remote sends.
        [Some(path), to].into_iter().flatten().try_for_each(check_length)?;
        let done = self.usage.record(&[path, to.unwrap_or_default()]).and_then(|()| self.carry_out(call));
        let outcome = done.as_ref().map(|_| ());
        self.journal.record(&ExportAuditEntry { op, path, to, bytes, outcome });
        done
    }

    /// Like [`Self::change`], without the audit entry.
    pub(super) fn carry_out<T>(
        &self,
        call: impl FnOnce(&mut OriginalsStore) -> Result<T, ExportRefusal>,
    ) -> Result<T, ExportRefusal> {
        self.usage.operation()?;
        let keeper = self.originals.as_ref().ok_or(ExportRefusal::ReadOnly)?;
        let _under_way = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut keeper: MutexGuard<'_, OriginalsStore> = held(keeper);
        self.check_live()?;
        let done = call(&mut keeper);
        held(&self.looked_at).clear();
        done
    }

    /// Whether something can be created or changed under this name.
    pub(super) fn admit(&self, path: &[u8], folder: bool) -> Result<(), ExportRefusal> {
        if !self.filter.shows(path, folder) {
            return Err(WITHHELD);
        }
        if self.is_guarded(path, folder) { Err(GUARDED) } else { Ok(()) }
    }

    /// Whether git would run something from there, or be redirected by it.
    fn is_guarded(&self, path: &[u8], folder: bool) -> bool {
        guarded(path)
            || (!folder && is_repository(path))
            || run_from(path).into_iter().any(|above| self.is_taken_for_one(above))
    }

    /// Whether git treats the folder as a repository, whatever its name.
    pub(super) fn is_taken_for_one(&self, folder: &[u8]) -> bool {
        REPOSITORIES.iter().any(|parts| self.holds(folder, parts.iter().copied()))
    }

    /// Whether a new entry can have an admitted name: it must not create a repository from which git would take
    /// commands.
    pub(super) fn admit_new(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        let (folder, mut others) = part_of(path);
        if others.any(|rest| self.holds(folder, rest)) { Err(PLANTED) } else { Ok(()) }
    }

    /// Whether a file can have both names. Git writes some of a repository's files in place, and would write to whatever else
    /// is the same file. It links only objects.
    pub(super) fn admit_second_name(&self, from: &[u8], to: &[u8]) -> Result<(), ExportRefusal> {
        let repository = |path: &[u8]| {
            let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
            let mut folders = std::iter::once(0).chain(ends).map(|end| &path[..end]);
            folders.find(|folder| is_repository(folder) || self.is_taken_for_one(folder)).map(<[u8]>::to_vec)
        };
        let (old, new) = (repository(from), repository(to));
        let is_fine = old == new && (old.is_none() || is_stored(from) && is_stored(to));
        if is_fine { Ok(()) } else { Err(GUARDED) }
    }

    /// Whether an entry that can be changed can lose its name. If its folder stopped being a repository, git would look
    /// for another one, and nothing would guard what it runs.
    pub(super) fn admit_gone(&self, path: &[u8]) -> Result<(), ExportRefusal> {
        if is_own_index(path) {
            return Err(INDEX);
        }
        self.admit_loss(path)?;
        let (folder, mut others) = part_of(path);
        if others.any(|rest| self.holds(folder, rest)) { Err(PART) } else { Ok(()) }
    }

    fn holds<'a>(&self, folder: &[u8], names: impl IntoIterator<Item = &'a [u8]>) -> bool {
        names.into_iter().all(|name| matches!(self.root.find_optional(&join(folder, name)), Ok(Some(_))))
    }

    /// Keeps originals under all names of a file that is about to change in place. A file that also has a name outside
    /// what the lease can change is left alone, because the change would show there.
    pub(super) fn keep_in_place(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        found: &PathHandle,
    ) -> Result<(), ExportRefusal> {
        let go_on = || self.check_live();
        let ours = keeper.links_of(found.attributes.inode);
        if found.attributes.kind == FileKind::File && found.attributes.links > 1 + ours {
            let names = self.names_of(&found.attributes)?;
            if u32::try_from(names.len()).unwrap_or(u32::MAX) + ours < found.attributes.links {
                return Err(ExportRefusal::Denied(
                    "the file has another name (hard link) outside the part that can be changed; write a copy and rename it over this one",
                ));
            }
            for name in &names {
                keeper.keep_original(&self.root, name, Some(found), PendingChange::ChangedInPlace, &go_on)?;
            }
        }
        keeper.keep_original(&self.root, place.whole(), Some(found), PendingChange::ChangedInPlace, &go_on)
    }

    /// Every name of a file that the lease shows and allows to change.
    fn names_of(&self, file: &FileAttributes) -> Result<Vec<Vec<u8>>, ExportRefusal> {
        let mut names = Vec::new();
        self.root.walk(b"", |path, attributes| {
            self.check_live()?;
            if !self.filter.shows(path, attributes.is_folder()) {
                return Ok(false);
            }
            let may_change = !self.is_guarded(path, false) && trusted_git_file(path).is_none() && !is_stored(path);
            if attributes.inode == file.inode && attributes.device == file.device && may_change {
                names.push(path.to_vec());
            }
            Ok(true)
        })?;
        Ok(names)
    }

    /// Keeps what somebody on the host wrote to a file that the lease has open, before the lease continues writing.
    pub(super) fn keep_host_edit(
        &self,
        keeper: &mut OriginalsStore,
        path: &[u8],
        found: &PathHandle,
        seen: (u64, FileTime),
    ) -> Result<(), ExportRefusal> {
        let now = found.current_attributes()?;
        if (now.size, now.modified) == seen {
            return Ok(());
        }
        keeper.keep_version(&self.root, path, found, &|| self.check_live())
    }

    pub(super) fn alter(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        found: &PathHandle,
        writer: Option<&OwnedFd>,
        change: &AttributeChange,
    ) -> Result<(), ExportRefusal> {
        if change.is_nothing() {
            return Ok(());
        }
        self.admit(place.whole(), found.attributes.is_folder())?;
        match found.attributes.kind {
            FileKind::Special => return Err(SPECIAL),
            FileKind::Folder if change.size.is_some() => return Err(ExportRefusal::IsADirectory),
            FileKind::Link if change.size.is_some() || change.mode.is_some() => return Err(ExportRefusal::Unsupported),
            FileKind::File | FileKind::Folder | FileKind::Link => {}
        }
        if let Some(size) = change.size {
            self.usage.resize(found.attributes.size, size)?;
            self.admit_in_place(keeper, place, found)?;
            if (1..found.attributes.size).contains(&size) {
                admit_inside_log(self.masked(place.whole()), found)?;
            }
            self.admit_write(found.attributes.inode)?;
        }
        if let Some(mode) = change.mode {
            admit_mode(place, found, mode)?;
        }
        self.keep_in_place(keeper, place, found)?;
        // A file that is open for writing is settled when it is closed.
        let open = held(&self.writing).get(&found.attributes.inode).map(|writing| Arc::clone(&writing.seen));
        let Some(seen) = open else {
            let done = apply(found, writer, change);
            keeper.record_file_after(&self.root, place.whole(), found.attributes.inode, None);
            return done;
        };
        let mut seen = held(&seen);
        self.keep_host_edit(keeper, place.whole(), found, *seen)?;
        let done = apply(found, writer, change);
        let now = found.current_attributes()?;
        *seen = (now.size, now.modified);
        done
    }
}

/// Whether a folder can get this mode: no other user of the host gets the right to put settings or hooks into a repository,
/// and its owner keeps all rights.
fn admit_mode(place: &ExportPath, found: &PathHandle, mode: u32) -> Result<(), ExportRefusal> {
    let is_more = mode & 0o022 & !found.attributes.mode != 0;
    let is_less = mode & 0o700 != 0o700;
    match found.attributes.is_folder() && inside(place.whole()).is_some() && (is_more || is_less) {
        true => Err(GUARDED),
        false => Ok(()),
    }
}

/// Through the handle, so that it can't affect anything else.
fn apply(found: &PathHandle, writer: Option<&OwnedFd>, change: &AttributeChange) -> Result<(), ExportRefusal> {
    match (change.size, writer) {
        (Some(size), Some(writer)) => rustix::fs::ftruncate(writer, size)?,
        (Some(size), None) => rustix::fs::ftruncate(found.reopen(WRITE)?, size)?,
        (None, _) => {}
    }
    if let Some(mode) = change.mode {
        // A folder keeps its setgid and sticky bits, which its owner set for sharing within a group. A file loses them.
        let special = if found.attributes.is_folder() { found.attributes.mode & 0o7000 } else { 0 };
        found.set_mode(special | (mode & 0o777))?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        set_times(found, change.accessed, change.modified)?;
    }
    Ok(())
}

pub(crate) fn set_times(
    found: &PathHandle,
    accessed: Option<FileTime>,
    modified: Option<FileTime>,
) -> Result<(), Errno> {
    let time = |moment: Option<FileTime>| match moment {
        Some(FileTime { seconds, nanos }) => Timespec { tv_sec: seconds, tv_nsec: i64::from(nanos) },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    found.set_times(&times)
}
