//! Private files: folders with mode 0700, files with mode 0600 that are replaced atomically, and locks between
//! processes.

use std::{fs::File, io, path::Path, time::Duration};

use attache_os::private_file;
use attache_protocol::env::Env;

use crate::Error;

/// Creates a folder that only its owner can enter. Restricts the permissions of an existing one.
pub(crate) fn private_folder(path: &Path) -> Result<(), Error> {
    private_file::folder(path).map_err(Error::io(path))
}

/// Replaces a file atomically: readers and a crash see the old or the new content, never a part.
pub(crate) fn replace(path: &Path, content: &[u8], env: &Env) -> Result<(), Error> {
    private_file::write_with(path, content, env).map_err(Error::io(path))
}

pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Blocks until the lock is free, and holds it until the file is dropped.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    attache_os::lock::wait(path).map_err(Error::io(path))
}

/// Acquires the lock within the timeout.
pub(crate) async fn try_lock(path: &Path, timeout: Duration) -> Result<File, Error> {
    let lock = attache_os::lock::acquire(path, timeout).await.map_err(Error::io(path))?;
    lock.ok_or_else(|| Error::AlreadyRunning { path: path.to_owned() })
}
