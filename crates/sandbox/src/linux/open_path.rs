//! What a process without namespaces can see besides the system, opened once: what was there when the walls were decided on
//! is compared with what the rules are made for, and no path is looked up again in between.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};

use crate::Walls;

pub(super) struct OpenPath {
    path: PathBuf,
    file: OwnedFd,
    pub(super) is_folder: bool,
    pub(super) is_writable: bool,
    device: u64,
    inode: u64,
}

/// What is at a path, if no link leads there.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Leaves the real paths of what is there. What isn't can't be opened later, either.
pub(super) fn resolve(walls: &mut Walls) -> io::Result<()> {
    walls.cwd = walls.cwd.canonicalize()?;
    for paths in [&mut walls.write, &mut walls.read] {
        *paths = paths.iter().filter_map(|path| path.canonicalize().ok()).collect();
    }
    if walls.exact.iter().any(|path| !walls.read.contains(path)) {
        return Err(io::Error::other("a link leads to its repository; try again"));
    }
    // Only namespaces can do that.
    walls.fixed.clear();
    Ok(())
}

/// The working folder, then the others.
pub(super) fn open_all(walls: &Walls) -> io::Result<Vec<OpenPath>> {
    let writable = [&walls.cwd].into_iter().chain(&walls.write).map(|path| OpenPath::open(path, true));
    writable.chain(walls.read.iter().map(|path| OpenPath::open(path, false))).collect()
}

pub(super) fn identity(opened: &[OpenPath]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for OpenPath { path, device, inode, .. } in opened {
        (path, device, inode).hash(&mut hasher);
    }
    hasher.finish()
}

// === impl OpenPath ===

impl OpenPath {
    fn open(path: &Path, is_writable: bool) -> io::Result<Self> {
        let file = open(path)?;
        let found = fstat(&file)?;
        let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
        Ok(Self { path: path.to_owned(), file, is_folder, is_writable, device: found.st_dev, inode: found.st_ino })
    }
}

impl AsFd for OpenPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
