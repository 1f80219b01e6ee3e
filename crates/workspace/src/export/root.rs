//! The folder as file handles: one for the root, and everything else resolved from it so that it can't leave it. A path is
//! never resolved twice as a string.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use attache_os::{
    file_attributes::FileAttributes,
    path_handle::{self, attributes_in},
};
use rustix::{
    fs::{Dir, OFlags},
    io::Errno,
};

use super::{
    path::join,
    refusal::{ExportError, ExportRefusal},
};

pub(crate) use attache_os::path_handle::{PathHandle, attributes_of};

#[derive(Debug)]
pub(crate) struct ExportRoot {
    fd: OwnedFd,
}

// === impl ExportRoot ===

impl ExportRoot {
    pub(crate) fn open(dir: &Path) -> Result<Self, ExportError> {
        let folder = |errno: Errno| ExportError::Folder { dir: dir.to_owned(), source: errno.into() };
        let fd = path_handle::root(dir).map_err(|errno| match errno {
            Errno::NOTDIR => ExportError::NotAFolder { dir: dir.to_owned() },
            errno => folder(errno),
        })?;
        let root = Self { fd };
        let found = match PathHandle::find(&root.fd, b"") {
            Err(Errno::NOSYS | Errno::PERM) => return Err(ExportError::NoConfinement),
            found => found.map_err(folder)?,
        };
        match found.reopen(OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(_) => Ok(root),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(folder(errno)),
            Err(_) => Err(ExportError::NoProc),
        }
    }

    /// Finds a validated path. A link at its end is returned itself.
    pub(crate) fn find(&self, path: &[u8]) -> Result<PathHandle, ExportRefusal> {
        Ok(PathHandle::find(&self.fd, path)?)
    }

    pub(crate) fn find_optional(&self, path: &[u8]) -> Result<Option<PathHandle>, ExportRefusal> {
        match PathHandle::find(&self.fd, path) {
            Ok(found) => Ok(Some(found)),
            // Below a link, nothing exists here either.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The folder in which one more name is used.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<OwnedFd, ExportRefusal> {
        Ok(path_handle::folder(&self.fd, path)?)
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
        match attributes_in(&stats, name) {
            Ok(attributes) => Some(Ok((name.to_bytes().to_vec(), attributes))),
            Err(Errno::NOENT) => None,
            Err(errno) => Some(Err(errno.into())),
        }
    })))
}
