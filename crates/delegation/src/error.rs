//! Why the daemon can't start, or can't read or write one of its files.

use std::{io, net::SocketAddr, path::PathBuf};

use attache_os::path_error::PathError;
use attache_protocol::error::exit;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("a daemon is already running in this home folder (lock {}); commands use that one, and `attache daemon --stop` ends it", path.display())]
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
        let named = PathError::at(path);
        move |source| named(source).into()
    }
}
