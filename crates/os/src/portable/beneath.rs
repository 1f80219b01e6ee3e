//! Paths below a folder, resolved name by name: each is opened in the folder before it, and never through a link that the
//! system follows.

use std::{
    ffi::OsStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, readlinkat, statat},
    io::Errno,
    path::Arg,
};

use crate::confined::Confinement;

const FOLDER: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// As many as Linux follows.
const MAX_LINKS: usize = 40;

/// Something below a folder.
pub(crate) struct BeneathFile {
    pub(crate) fd: OwnedFd,
    below: PathBuf,
}

/// A name in an open folder. The name is `.` for the folder itself.
#[derive(Debug)]
pub(super) struct NameInFolder {
    pub(super) folder: OwnedFd,
    pub(super) name: Vec<u8>,
    below: PathBuf,
}

pub(crate) fn open(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
    confinement: Confinement,
) -> Result<BeneathFile, Errno> {
    let NameInFolder { folder, name, below } = resolve(folder.as_fd(), path.into_c_str()?.to_bytes(), confinement)?;
    let fd = openat(&folder, &name[..], flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)?;
    Ok(BeneathFile { fd, below })
}

/// A folder by its path, which can contain links.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// A folder by its path, of which no part can be a link.
pub(crate) fn folder_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    let mut folder = openat(CWD, if path.is_absolute() { "/" } else { "." }, FOLDER, Mode::empty())?;
    for part in path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir)) {
        folder = open_folder(folder.as_fd(), part.as_os_str().as_bytes())?;
    }
    Ok(folder)
}

/// Finds the folder that a path ends in. What its last name is, or whether it exists, is for the caller to find out.
pub(super) fn resolve(root: BorrowedFd<'_>, path: &[u8], confinement: Confinement) -> Result<NameInFolder, Errno> {
    let device = fstat(root)?.st_dev;
    let mut folders =
        vec![root.try_clone_to_owned().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?];
    let mut below = PathBuf::new();
    let mut followed = 0;
    // The next name is the last one.
    let mut names: Vec<Vec<u8>> = split(path);
    while let Some(name) = names.pop() {
        let Some(folder) = folders.last() else { return Err(Errno::XDEV) };
        if name == b".." {
            if !below.pop() {
                return Err(Errno::XDEV);
            }
            folders.pop();
            continue;
        }
        let found = statat(folder, &name[..], AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink) {
            if confinement == Confinement::LinksInside {
                followed += 1;
                let target = readlinkat(folder, &name[..], Vec::new())?.into_bytes();
                if target.starts_with(b"/") || followed > MAX_LINKS {
                    return Err(Errno::LOOP);
                }
                names.extend(split(&target));
                continue;
            }
            if !names.is_empty() {
                return Err(Errno::LOOP);
            }
        }
        if confinement == Confinement::OneFileSystem && found.is_ok_and(|found| found.st_dev != device) {
            return Err(Errno::XDEV);
        }
        if names.is_empty() {
            below.push(OsStr::from_bytes(&name));
            let folder = folders.pop().ok_or(Errno::XDEV)?;
            return Ok(NameInFolder { folder, name, below });
        }
        let next = open_folder(folder.as_fd(), &name)?;
        if confinement == Confinement::OneFileSystem && fstat(&next)?.st_dev != device {
            return Err(Errno::XDEV);
        }
        folders.push(next);
        below.push(OsStr::from_bytes(&name));
    }
    let folder = folders.pop().ok_or(Errno::XDEV)?;
    Ok(NameInFolder { folder, name: b".".to_vec(), below })
}

/// The names of a path, the last one first.
fn split(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.rev().map(<[u8]>::to_vec).collect()
}

fn open_folder(folder: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(folder, name, FOLDER, Mode::empty())
}

// === impl BeneathFile ===

impl BeneathFile {
    /// Where it really is, after all links.
    pub(crate) fn real_path(&self, root: &Path) -> io::Result<PathBuf> {
        Ok(root.join(&self.below))
    }
}
