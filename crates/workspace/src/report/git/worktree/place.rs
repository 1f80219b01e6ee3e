//! Files that are created in a repository without following a link: another run may work there at the same time, and know
//! their names.

use std::{
    fs::File,
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use attache_os::path_handle;
use rustix::{
    fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};

use super::{Error, at};

/// A folder to which no link leads, whatever happens to its path.
#[derive(Debug)]
pub(super) struct RepositoryFolder {
    folder: OwnedFd,
    path: PathBuf,
}

const FOLDER_MODE: Mode = Mode::from_raw_mode(0o777);
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

// === impl RepositoryFolder ===

impl RepositoryFolder {
    /// A folder below one whose own path is trusted. Those on the way that are missing are created.
    pub(super) fn make(root: &Path, below: &Path) -> Result<Self, Error> {
        let root = Self { folder: path_handle::root(root).map_err(failed(root))?, path: root.to_owned() };
        below.iter().try_fold(root, |folder, name| {
            let path = folder.path.join(name);
            match mkdirat(&folder.folder, name, FOLDER_MODE) {
                Ok(()) | Err(Errno::EXIST) => folder.enter(path),
                Err(error) => Err(failed(&path)(error)),
            }
        })
    }

    pub(super) fn open(root: &Path, below: &Path) -> Result<Self, Error> {
        let root = Self { folder: path_handle::root(root).map_err(failed(root))?, path: root.to_owned() };
        below.iter().try_fold(root, |folder, name| {
            let path = folder.path.join(name);
            folder.enter(path)
        })
    }

    fn enter(&self, path: PathBuf) -> Result<Self, Error> {
        let name = path.file_name().unwrap_or_default().as_bytes();
        match path_handle::folder(&self.folder, name) {
            Ok(folder) => Ok(Self { folder, path }),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(Error::Replaced(path)),
            Err(error) => Err(failed(&path)(error)),
        }
    }

    /// A folder in it that isn't there yet.
    pub(super) fn create(&self, name: &str) -> Result<Self, Error> {
        let path = self.path.join(name);
        mkdirat(&self.folder, name, FOLDER_MODE).map_err(failed(&path))?;
        self.enter(path)
    }

    pub(super) fn check_absent(&self, name: &str) -> Result<(), Error> {
        match statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(()),
            _ => Err(Error::Replaced(self.path.join(name))),
        }
    }

    /// A file that isn't there yet.
    pub(super) fn write(&self, name: &str, content: &mut impl Read) -> Result<(), Error> {
        let path = self.path.join(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.folder, name, flags, FILE_MODE).map_err(failed(&path))?;
        io::copy(content, &mut File::from(file)).map_err(at(&path)).map(drop)
    }

    /// A file in the place of whatever has that name.
    pub(super) fn replace(&self, name: &str, content: &mut impl Read) -> Result<(), Error> {
        let draft = format!("{name}.attache");
        self.remove(&draft)?;
        self.write(&draft, content)?;
        renameat(&self.folder, &*draft, &self.folder, name).map_err(failed(&self.path.join(name)))
    }

    /// Removes a file or link, if there is one.
    pub(super) fn remove(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(&self.path.join(name))(error)),
        }
    }
}

fn failed(path: &Path) -> impl FnOnce(Errno) -> Error {
    let at = at(path);
    |error| at(error.into())
}
