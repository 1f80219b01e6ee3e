//! No run inside walls may work in a repository while git is asked about it, or changes files there: it could put a link
//! in the way between a check and its use. Such a run holds its folder ([`attache_os::lock::FolderLock::shared`]).

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::{
    lock::{FolderLock, FolderLockError},
    look_up,
};

use super::Error;

/// Others of these wait for each other, and a run lets go of its folder a moment after its end.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// A large worktree takes its time.
pub(super) const CREATE_TIMEOUT: Duration = Duration::from_secs(10);

/// Until this is dropped, no run begins in the working tree, in the folder with its objects, or around them. Fails if one
/// works there.
pub(super) fn in_repository(top: &Path, common: &Path, timeout: Duration) -> Result<FolderLock, Error> {
    let folders: BTreeSet<&Path> = top.ancestors().chain(common.ancestors()).filter(|folder| is_ours(folder)).collect();
    FolderLock::alone(folders, timeout).map_err(not_alone)
}

/// The same for the folders of files in it.
pub(super) fn in_folders_of(top: &Path, names: &[Vec<u8>]) -> Result<FolderLock, Error> {
    let folders: BTreeSet<PathBuf> = names
        .iter()
        .flat_map(|name| Path::new(OsStr::from_bytes(name)).ancestors().skip(1))
        .filter(|folder| !folder.as_os_str().is_empty())
        .map(|folder| top.join(folder))
        .collect();
    FolderLock::alone(folders.iter().map(PathBuf::as_path), TIMEOUT).map_err(not_alone)
}

fn not_alone(error: FolderLockError) -> Error {
    match error {
        FolderLockError::Busy(folder) => Error::Busy(folder),
        FolderLockError::Unreachable { path, source } => Error::File { path, source },
    }
}

/// Runs work in folders of this user. In one of another user, somebody else could keep a lock.
fn is_ours(folder: &Path) -> bool {
    let is_own = |found: std::fs::Metadata| found.uid() == rustix::process::geteuid().as_raw();
    // What can't be looked at can't be locked either, which fails then.
    look_up::metadata(folder).map_or(true, |found| found.is_some_and(is_own))
}
