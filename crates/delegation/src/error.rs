//! Why the daemon can't start, or can't read or write one of its files.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::{env::Env, error::exit};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("a daemon is already running in this home folder (lock {})", path.display())]
    DaemonRunning { path: PathBuf },
    #[error("can't listen on {address}: {source}. Choose another address with --ssh-listen.")]
    Listen { address: SocketAddr, source: io::Error },
}

// === impl Error ===

impl Error {
    pub fn exit_code(&self) -> u8 {
        exit::FAILED
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// Creates a folder that only its owner can enter. Restricts the permissions of an existing one.
pub(crate) fn private_folder(path: &Path) -> Result<(), Error> {
    private_file::folder(path).map_err(Error::io(path))
}

/// Blocks until the lock is free.
pub(crate) fn lock(path: &Path) -> Result<File, Error> {
    attache_os::lock::wait(path).map_err(Error::io(path))
}

/// Replaces a private file atomically.
pub(crate) fn replace(path: &Path, content: &[u8], env: &Env) -> Result<(), Error> {
    private_file::write_with(path, content, env).map_err(Error::io(path))
}
