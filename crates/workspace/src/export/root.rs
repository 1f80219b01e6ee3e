//! The folder as file handles: one for the root, and everything else resolved from it by the kernel in one step that
//! can't leave it. A path is never resolved twice as a string.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, ResolveFlags, openat2, statx},
    io::Errno,
};

use super::{
    attributes::{FileAttributes, FileKind, WANTED},
    path::join,
    refusal::{ExportError, ExportRefusal},
};

#[derive(Debug)]
pub(crate) struct ExportRoot {
    fd: OwnedFd,
}

/// An entry of the tree, held by its handle (`O_PATH`): whatever happens to its name, the handle stays with it.
#[derive(Debug)]
pub(crate) struct PathHandle {
    fd: OwnedFd,
    pub(crate) attributes: FileAttributes,
}

/// Nothing above the root, no symbolic links in between, no `/proc` magic links. File systems mounted inside the folder
/// are not part of the export: they may be another disk, `/proc`, or the mount of another lease.
const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_XDEV);

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

// === impl ExportRoot ===

impl ExportRoot {
    pub(crate) fn open(dir: &Path) -> Result<Self, ExportError> {
        let folder = |errno: Errno| ExportError::Folder { dir: dir.to_owned(), source: errno.into() };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(CWD, dir, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOTDIR => ExportError::NotAFolder { dir: dir.to_owned() },
            errno => folder(errno),
        })?;
        let root = Self { fd };
        let found = match root.handle(b"", OFlags::empty()) {
            Err(Errno::NOSYS | Errno::PERM) => return Err(ExportError::NoConfinement),
            found => PathHandle::of(found.map_err(folder)?).map_err(folder)?,
        };
        match found.reopen(OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(_) => Ok(root),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(folder(errno)),
            Err(_) => Err(ExportError::NoProc),
        }
    }

    /// Finds a validated path. A link at its end is returned itself.
    pub(crate) fn find(&self, path: &[u8]) -> Result<PathHandle, ExportRefusal> {
        Ok(PathHandle::of(self.handle(path, OFlags::empty())?)?)
    }

    pub(crate) fn find_optional(&self, path: &[u8]) -> Result<Option<PathHandle>, ExportRefusal> {
        match self.handle(path, OFlags::empty()) {
            Ok(fd) => Ok(Some(PathHandle::of(fd)?)),
            // Below a link, nothing exists here either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The folder in which one more name is used.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<OwnedFd, ExportRefusal> {
        Ok(self.handle(path, OFlags::DIRECTORY)?)
    }

    fn handle(&self, path: &[u8], more: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { b"." } else { path };
        loop {
            match openat2(&self.fd, path, HANDLE | more, Mode::empty(), CONFINED) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                done => return done,
            }
        }
    }

    /// Visits everything below a folder, parents first. `visit` returns whether to descend.
    pub(crate) fn walk(
        &self,
        from: &[u8],
        mut visit: impl FnMut(&[u8], &FileAttributes) -> Result<bool, ExportRefusal>,
    ) -> Result<(), ExportRefusal> {
        let mut folders = vec![from.to_vec()];
        while let Some(folder) = folders.pop() {
            let Some(found) = self.find_optional(&folder)? else { continue };
            for entry in entries(found.reopen(OFlags::RDONLY | OFlags::DIRECTORY)?)? {
                let (name, attributes) = entry?;
                let path = join(&folder, &name);
                if visit(&path, &attributes)? && attributes.is_folder() && !attributes.mount_root {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }
}

impl AsFd for ExportRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// === impl PathHandle ===

impl PathHandle {
    pub(crate) fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let attributes = attributes_of(&fd)?;
        Ok(Self { fd, attributes })
    }

    /// The same entry, opened for use. A FIFO or device is never opened: that alone can block or have an effect.
    pub(crate) fn reopen(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        if !matches!(self.attributes.kind, FileKind::File | FileKind::Folder) {
            return Err(Errno::LOOP);
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        rustix::fs::open(self.proc_path(), flags, Mode::empty())
    }

    /// A magic link to this handle, for calls that don't accept an `O_PATH` handle.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    pub(crate) fn target(&self) -> Result<Vec<u8>, ExportRefusal> {
        if self.attributes.kind != FileKind::Link {
            return Err(ExportRefusal::Invalid);
        }
        Ok(rustix::fs::readlinkat(&self.fd, "", Vec::new())?.into_bytes())
    }
}

impl AsFd for PathHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn attributes_of(fd: impl AsFd) -> Result<FileAttributes, Errno> {
    Ok(FileAttributes::from(&statx(fd, "", AtFlags::EMPTY_PATH, WANTED)?))
}

/// The entries of a folder with their attributes.
pub(crate) type DirectoryEntries = Box<dyn Iterator<Item = Result<(Vec<u8>, FileAttributes), ExportRefusal>> + Send>;

/// The entries of an open folder, without `.` and `..`. Entries that vanish meanwhile are skipped.
pub(crate) fn entries(folder: OwnedFd) -> Result<DirectoryEntries, ExportRefusal> {
    let stats = folder.try_clone().map_err(|error: io::Error| ExportRefusal::from(error))?;
    let dir = Dir::new(folder)?;
    Ok(Box::new(dir.filter_map(move |entry| {
        let entry = match entry {
            Ok(entry) => entry,
            Err(errno) => return Some(Err(errno.into())),
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            return None;
        }
        match statx(&stats, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, WANTED) {
            Ok(stat) => Some(Ok((name.to_bytes().to_vec(), FileAttributes::from(&stat)))),
            Err(Errno::NOENT) => None,
            Err(errno) => Some(Err(errno.into())),
        }
    })))
}
