//! Paths below a folder, resolved by the kernel in one step (`openat2`).

use std::{
    io,
    os::fd::{AsFd, AsRawFd as _, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
    path::Arg,
};

use crate::confined::Confinement;

/// Something below a folder.
pub(crate) struct BeneathFile {
    pub(crate) fd: OwnedFd,
}

pub(crate) fn open(
    folder: impl AsFd,
    path: impl Arg,
    flags: OFlags,
    mode: Mode,
    confinement: Confinement,
) -> Result<BeneathFile, Errno> {
    let resolve = match confinement {
        Confinement::LinksInside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        Confinement::NoLinks => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        Confinement::OneFileSystem => {
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV
        }
    };
    Ok(BeneathFile { fd: openat2(folder, path, flags | OFlags::CLOEXEC, mode, resolve)? })
}

/// A folder by its path, which can contain links.
pub(crate) fn folder(path: &Path) -> Result<OwnedFd, Errno> {
    openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// A folder by its path, of which no part can be a link.
pub(crate) fn folder_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)
}

// === impl BeneathFile ===

impl BeneathFile {
    /// Where it really is, after all links.
    pub(crate) fn real_path(&self, _root: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/self/fd/{}", self.fd.as_raw_fd()))
    }
}
