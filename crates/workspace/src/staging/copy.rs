//! Copies what a lease shows of a folder to a private place, sharing the bytes where the file system can.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::fs::DirBuilderExt as _},
    path::Path,
};

use attache_os::{file_space, path_handle::WRITE, removal};
use rustix::{
    fs::{Mode, OFlags, mkdirat, openat, symlinkat},
    io::Errno,
};

use crate::export::{
    ExportError, ExportFilter, ExportPatterns, ExportRefusal, FileAttributes, FileKind, PathStamp,
    path::{ExportPath, join},
    root::{ExportRoot, PathHandle, entries},
    set_times, show,
};

#[derive(Debug, Clone, Copy)]
pub struct CopyLimits {
    /// The copy isn't made if it would be larger.
    pub bytes: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopySummary {
    pub bytes: u64,
    pub files: u64,
    /// Files and folders that can't be read here. They aren't in the copy.
    pub unreadable: Vec<String>,
}

/// Why there is no copy. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Folder(#[from] ExportError),
    #[error("the folder has {}, and all copies together may have {} more", size(*bytes), size(*limit))]
    TooLarge { bytes: u64, limit: u64 },
    #[error("the copy needs {}, and the disk has {} to spare", size(*bytes), size(*free))]
    NoRoom { bytes: u64, free: u64 },
    #[error("`{path}` kept changing while it was copied")]
    Changing { path: String },
    #[error("it was given up")]
    GivenUp,
    #[error("`{path}`: {refusal}")]
    Failed { path: String, refusal: ExportRefusal },
}

/// The copy that is being made.
struct FolderCopy<'a> {
    from: ExportRoot,
    to: ExportRoot,
    go_on: &'a dyn Fn() -> bool,
    summary: CopySummary,
    /// Until a file can't share its bytes.
    shares: bool,
    /// Bytes that can still be copied without filling the disk.
    room: u64,
}

/// A path to copy.
type FoundEntry = (Vec<u8>, FileAttributes);

/// So much of the disk stays free: a twentieth, and at most this.
const MAX_RESERVE: u64 = 1 << 30;
const COPY_TRIES: usize = 5;
const MAX_UNREADABLE: usize = 20;

/// Makes the copy in the folder `to`, which must not exist. Each file is in it as it was at one moment. What the rules hide isn't in it,
/// nor are devices, sockets and what is mounted in the folder. `go_on` is asked before each file.
pub fn make_copy(
    from: &Path,
    to: &Path,
    rules: &ExportPatterns,
    limits: CopyLimits,
    go_on: &dyn Fn() -> bool,
) -> Result<CopySummary, CopyError> {
    let failed = |error: io::Error| CopyError::Failed { path: show(b""), refusal: error.into() };
    fs::DirBuilder::new().mode(0o700).create(to).map_err(failed)?;
    let made = FolderCopy::new(from, to, go_on).and_then(|copy| copy.make(&ExportFilter::new(rules)?, limits));
    if made.is_err()
        && let Err(error) = removal::remove(to)
    {
        tracing::warn!(%error, "an incomplete copy of a folder is left");
    }
    made
}

// === impl FolderCopy ===

impl<'a> FolderCopy<'a> {
    fn new(from: &Path, to: &Path, go_on: &'a dyn Fn() -> bool) -> Result<Self, CopyError> {
        let (from, to) = (ExportRoot::open(from)?, ExportRoot::open(to)?);
        Ok(Self { from, to, go_on, summary: CopySummary::default(), shares: true, room: 0 })
    }

    fn make(mut self, filter: &ExportFilter, limits: CopyLimits) -> Result<CopySummary, CopyError> {
        let entries = self.list(filter)?;
        let bytes: u64 = entries.iter().map(|(_, attributes)| size_of(attributes)).sum();
        if bytes > limits.bytes {
            return Err(CopyError::TooLarge { bytes, limit: limits.bytes });
        }
        self.room = free_room(&self.to).map_err(|errno| failed(b"", errno.into()))?;
        for (path, attributes) in &entries {
            if !(self.go_on)() {
                return Err(CopyError::GivenUp);
            }
            match self.entry(path, attributes.kind, bytes) {
                Ok(()) => {}
                // Removed since, or with the folder that it is in.
                Err(CopyError::Failed { refusal: ExportRefusal::NotFound, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Last, because every entry changes the times of its folder, and a folder may be read-only.
        for (path, attributes) in entries.iter().rev().filter(|(_, attributes)| attributes.is_folder()) {
            let Ok(Some(made)) = self.to.find_optional(path) else { continue };
            self.attributes(&made, path, attributes)?;
        }
        self.summary.bytes = bytes;
        Ok(self.summary)
    }

    /// Everything that the lease shows, parents first.
    fn list(&mut self, filter: &ExportFilter) -> Result<Vec<FoundEntry>, CopyError> {
        let (mut found, mut folders) = (Vec::new(), vec![Vec::new()]);
        while let Some(folder) = folders.pop() {
            if !(self.go_on)() {
                return Err(CopyError::GivenUp);
            }
            let listed = entries_of(&self.from, &folder);
            let listed = match listed {
                Ok(listed) => listed,
                Err(ExportRefusal::NotFound | ExportRefusal::NotADirectory) => continue,
                Err(ExportRefusal::Denied(_)) if !folder.is_empty() => {
                    self.note_unreadable(&folder);
                    continue;
                }
                Err(refusal) => return Err(failed(&folder, refusal)),
            };
            for (name, attributes) in listed {
                let path = join(&folder, &name);
                let is_carried = attributes.kind != FileKind::Special && !attributes.mount_root;
                if !is_carried || !filter.shows(&path, attributes.is_folder()) {
                    continue;
                }
                if attributes.is_folder() {
                    folders.push(path.clone());
                }
                found.push((path, attributes));
            }
        }
        Ok(found)
    }

    fn entry(&mut self, path: &[u8], kind: FileKind, needed: u64) -> Result<(), CopyError> {
        let refused = |refusal| failed(path, refusal);
        let place = ExportPath::parse(path).map_err(refused)?;
        let parent = self.to.folder(place.parent()).map_err(refused)?;
        match kind {
            FileKind::Folder => mkdirat(&parent, place.name(), Mode::RWXU).map_err(|errno| refused(errno.into())),
            FileKind::Link => {
                let link = self.from.find(path).map_err(refused)?;
                let target = link.target().map_err(|errno| refused(errno.into()))?;
                symlinkat(&target[..], &parent, place.name()).map_err(|errno| refused(errno.into()))?;
                let made = self.to.find(path).map_err(refused)?;
                set_times(&made, None, Some(link.attributes.modified)).map_err(|errno| refused(errno.into()))
            }
            FileKind::File => self.file(&place, &parent, needed),
            FileKind::Special => Ok(()),
        }
    }

    fn file(&mut self, place: &ExportPath, parent: &OwnedFd, needed: u64) -> Result<(), CopyError> {
        let path = place.whole();
        let refused = |refusal| failed(path, refusal);
        for _ in 0..COPY_TRIES {
            let found = self.from.find(path).map_err(refused)?;
            let content = match found.reopen(OFlags::RDONLY) {
                Ok(content) => content,
                Err(Errno::ACCESS | Errno::PERM) => {
                    self.note_unreadable(path);
                    return Ok(());
                }
                Err(errno) => return Err(refused(errno.into())),
            };
            let flags = WRITE | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat(parent, place.name(), flags, Mode::RUSR | Mode::WUSR);
            let made = made.map_err(|errno| refused(errno.into()))?;
            self.bytes(&content, &made, found.attributes.size, needed, path)?;
            let is_whole = found.current_attributes().is_ok_and(|now| {
                (PathStamp::of(&now), now.changed) == (PathStamp::of(&found.attributes), found.attributes.changed)
            });
            if is_whole {
                self.summary.files += 1;
                let made = PathHandle::of(made).map_err(|errno| refused(errno.into()))?;
                return self.attributes(&made, path, &found.attributes);
            }
        }
        Err(CopyError::Changing { path: show(path) })
    }

    fn bytes(
        &mut self,
        content: &OwnedFd,
        made: &OwnedFd,
        size: u64,
        needed: u64,
        path: &[u8],
    ) -> Result<(), CopyError> {
        if self.shares && size > 0 {
            if file_space::share_bytes(made, content).is_ok() {
                return Ok(());
            }
            self.shares = false;
            if needed > self.room {
                return Err(CopyError::NoRoom { bytes: needed, free: self.room });
            }
        }
        let copied = content.try_clone().and_then(|content| {
            let made = made.try_clone()?;
            io::copy(&mut File::from(content), &mut File::from(made))
        });
        let copied = copied.map_err(|error| match ExportRefusal::from(error) {
            ExportRefusal::DiskFull => CopyError::NoRoom { bytes: needed, free: 0 },
            refusal => failed(path, refusal),
        })?;
        // The folder may have grown since.
        self.room = self.room.checked_sub(copied).ok_or(CopyError::NoRoom { bytes: needed, free: 0 })?;
        Ok(())
    }

    fn attributes(&self, made: &PathHandle, path: &[u8], was: &FileAttributes) -> Result<(), CopyError> {
        let refused = |errno: Errno| failed(path, errno.into());
        made.set_mode(was.mode & 0o777).map_err(refused)?;
        set_times(made, None, Some(was.modified)).map_err(refused)
    }

    fn note_unreadable(&mut self, path: &[u8]) {
        if self.summary.unreadable.len() < MAX_UNREADABLE {
            self.summary.unreadable.push(show(path));
        }
    }
}

fn entries_of(root: &ExportRoot, folder: &[u8]) -> Result<Vec<FoundEntry>, ExportRefusal> {
    entries(root.find(folder)?.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)?.collect()
}

fn failed(path: &[u8], refusal: ExportRefusal) -> CopyError {
    CopyError::Failed { path: show(path), refusal }
}

const fn size_of(attributes: &FileAttributes) -> u64 {
    match attributes.kind {
        FileKind::File => attributes.size,
        FileKind::Folder | FileKind::Link | FileKind::Special => 0,
    }
}

fn free_room(to: &ExportRoot) -> Result<u64, Errno> {
    let disk = rustix::fs::fstatvfs(to)?;
    let reserve = (disk.f_blocks.saturating_mul(disk.f_frsize) / 20).min(MAX_RESERVE);
    Ok(disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(reserve))
}

fn size(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
