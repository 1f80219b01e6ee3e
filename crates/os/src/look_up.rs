//! Look-ups where others choose the modes of folders: a program that works in a folder can close it, so that nothing below is
//! found any more, and open it again later. What can't be looked up may be there, so a closed folder of this user is opened
//! again. One of another user stays closed to every program of this one.

use std::{
    fs::{self, File, Metadata},
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    process::geteuid,
};

use crate::{
    path_handle::{self, PathHandle},
    program::way,
    system::beneath::folder_without_links,
};

/// What the owner needs to use a folder, and to read a file.
const OPEN: u32 = 0o700;
const READABLE: u32 = 0o400;
/// How often a folder is opened that somebody closes meanwhile.
const ATTEMPTS: usize = 100;

/// What came of opening something.
enum Opening {
    Opened,
    WasOpen,
    /// It belongs to another user.
    Foreign,
}

/// What is at a path itself, which may be a link. `None` if there is nothing, or nothing that this user can reach.
pub fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    opening(path, || path.symlink_metadata())
}

/// Whether there is anything at a path.
pub fn is_there(path: &Path) -> io::Result<bool> {
    Ok(metadata(path)?.is_some())
}

/// Whether there is a folder at a path itself.
pub fn is_folder(path: &Path) -> io::Result<bool> {
    Ok(metadata(path)?.is_some_and(|found| found.is_dir()))
}

/// The path without links. `None` if they lead nowhere, or where this user can't reach anything.
pub fn real_path(path: &Path) -> io::Result<Option<PathBuf>> {
    opening(path, || match path.canonicalize() {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => Err(io::ErrorKind::NotFound.into()),
        found => found,
    })
}

/// What is in a folder: nothing if it isn't there, or if this user can't read it.
pub fn entries(folder: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let list = || fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>();
    let listed = opening(folder, || match list() {
        Err(error) if is_closed(&error) && open_again(folder)? => list(),
        listed => listed,
    });
    Ok(listed?.unwrap_or_default())
}

/// Opens a folder of this user, and those on the way to it. `false` if one of them belongs to another user, or isn't there.
pub fn open_again(folder: &Path) -> io::Result<bool> {
    let opened = match open(folder) {
        Ok(Opening::Foreign) if open_way(folder)? => open(folder),
        opened => opened,
    };
    match opened {
        Ok(Opening::Opened | Opening::WasOpen) => Ok(true),
        Ok(Opening::Foreign) => Ok(false),
        Err(error) if is_absent(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a look-up failed for want of a right, which its owner can give back.
pub fn is_closed(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::ACCESS)
}

/// Opens a folder for reading, to mark or lock it. No link leads there. `None` if it belongs to another user, and is closed.
pub(crate) fn open_folder(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = || Ok(Some(File::from(rustix::fs::open(path, flags, Mode::empty())?)));
    match opened() {
        Err(error) if is_closed(&error) && !open_again(path)? => Ok(None),
        Err(error) if is_closed(&error) => opened(),
        opened => opened,
    }
}

/// Whether a file system refuses to lock anything.
pub fn has_no_locks(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL))
}

/// Lets this user read its own file again.
pub fn make_readable(file: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (file.parent(), file.file_name()) else { return Ok(()) };
    let entry = PathHandle::find(path_handle::root(above)?, name.as_bytes())?;
    if entry.attributes.kind == crate::file_attributes::FileKind::File {
        add_rights(&entry, READABLE)?;
    }
    Ok(())
}

fn opening<T>(path: &Path, look: impl Fn() -> io::Result<T>) -> io::Result<Option<T>> {
    let found = match look() {
        Err(error) if is_closed(&error) && !open_way(path)? => return Ok(None),
        Err(error) if is_closed(&error) => look(),
        found => found,
    };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absent(&error) || is_closed(&error) && is_foreign(path)? => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{} can't be looked at: {error}", path.display()))),
    }
}

/// Opens every folder on the way to a path, whatever links lead there. `false` if one belongs to another user.
fn open_way(path: &Path) -> io::Result<bool> {
    for _ in 0..ATTEMPTS {
        let way = way(path).unwrap_or_default();
        let closed = way.into_iter().find(|at| at.symlink_metadata().is_err_and(|error| is_closed(&error)));
        match closed.as_deref().and_then(Path::parent).map(open).transpose()? {
            None => return Ok(true),
            Some(Opening::Opened) => {}
            Some(Opening::Foreign) => return Ok(false),
            Some(Opening::WasOpen) => break,
        }
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("a folder above {} is closed", path.display())))
}

/// No part of its path is a link.
fn open(folder: &Path) -> io::Result<Opening> {
    let handle = folder_without_links(folder).and_then(PathHandle::of);
    match handle {
        Ok(handle) => add_rights(&handle, OPEN),
        // A file system that keeps even its attributes to another user.
        Err(Errno::ACCESS) => Ok(Opening::Foreign),
        Err(error) => Err(error.into()),
    }
}

fn is_foreign(folder: &Path) -> io::Result<bool> {
    Ok(matches!(open(folder)?, Opening::Foreign))
}

fn add_rights(entry: &PathHandle, rights: u32) -> io::Result<Opening> {
    if entry.attributes.uid != geteuid().as_raw() {
        return Ok(Opening::Foreign);
    }
    if entry.attributes.mode & rights == rights {
        return Ok(Opening::WasOpen);
    }
    entry.set_mode(entry.attributes.mode | rights)?;
    Ok(Opening::Opened)
}

pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(all(test, target_os = "linux", not(attache_portable)))]
#[allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]
pub(crate) mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::{
        process::Uid,
        thread::{set_thread_groups, set_thread_res_uid},
    };

    use super::*;

    /// Root may look everywhere, so it tries this as another user.
    pub(crate) fn as_ordinary_user(attempt: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let tried = scope.spawn(|| {
                if geteuid().is_root() {
                    let nobody = Uid::from_raw(65_534);
                    set_thread_groups(&[]).unwrap();
                    set_thread_res_uid(nobody, nobody, nobody).unwrap();
                }
                attempt();
            });
            tried.join().unwrap();
        });
    }

    pub(crate) fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_somebody_closed_is_found() {
        as_ordinary_user(|| {
            let root = tempfile::tempdir().unwrap();
            let root = root.path().canonicalize().unwrap();
            let at = |path: &str| root.join(path);
            fs::create_dir_all(at("a/b/c")).unwrap();
            fs::write(at("a/b/file"), "").unwrap();
            symlink("a/b/c", at("link")).unwrap();
            symlink("loop", at("loop")).unwrap();
            let close = || ["a/b/c", "a/b", "a"].iter().for_each(|path| set_mode(&at(path), 0o2005));
            close();
            assert!(at("a/b/file").symlink_metadata().is_err(), "this user may look everywhere");
            assert!(metadata(&at("a/b/file")).unwrap().unwrap().is_file());
            assert_eq!(mode(&at("a")), 0o2705);
            close();
            assert!(!is_there(&at("a/b/absent")).unwrap() && !is_there(&at("a/b/file/below")).unwrap());
            close();
            assert!(is_folder(&at("a/b/c")).unwrap() && !is_folder(&at("link")).unwrap());
            close();
            assert_eq!(real_path(&at("link")).unwrap(), Some(at("a/b/c")));
            assert_eq!((real_path(&at("loop")).unwrap(), real_path(&at("absent")).unwrap()), (None, None));
            close();
            assert_eq!(entries(&at("a/b")).unwrap().len(), 2);
            assert_eq!(entries(&at("absent")).unwrap().len(), 0);
            set_mode(&at("a/b"), 0o500);
            assert!(open_again(&at("a/b")).unwrap() && !open_again(&at("absent")).unwrap());
            assert_eq!(mode(&at("a/b")), 0o700);
            set_mode(&at("a/b/file"), 0o000);
            make_readable(&at("a/b/file")).unwrap();
            assert_eq!(mode(&at("a/b/file")), 0o400);
            close();
            open_again(&at("a/b/c")).unwrap();
        });
    }

    /// A folder of another user stays as it is, and a run of this one can't open it, either.
    #[test]
    fn what_another_user_closed_stays_closed() {
        if !geteuid().is_root() {
            return;
        }
        let root = tempfile::tempdir().unwrap();
        set_mode(root.path(), 0o755);
        let closed = root.path().canonicalize().unwrap().join("closed");
        fs::create_dir_all(closed.join("below")).unwrap();
        set_mode(&closed, 0o700);
        as_ordinary_user(|| {
            assert!(!is_there(&closed.join("below")).unwrap() && !open_again(&closed.join("below")).unwrap());
            assert_eq!((entries(&closed).unwrap().len(), real_path(&closed.join("below/x")).unwrap()), (0, None));
        });
        assert_eq!(mode(&closed), 0o700);
    }
}
