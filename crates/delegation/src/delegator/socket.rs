//! The daemon's socket: in a private folder, with mode 0600, and closed to every other user of this machine.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};

use crate::Error;

/// Accepts connections of its own user only.
#[derive(Debug)]
pub(super) struct DaemonSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

/// The operating system limits the length of a socket's path.
pub const MAX_SOCKET_PATH: usize = 100;

// === impl DaemonSocket ===

impl DaemonSocket {
    /// Replaces the socket of an earlier daemon. The caller holds the daemon's lock.
    pub(super) fn bind(path: &Path) -> Result<Self, Error> {
        if path.as_os_str().len() > MAX_SOCKET_PATH {
            let source = io::Error::other("the path is too long for a socket; choose a shorter AWCP_HOME");
            return Err(Error::io(path)(source));
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(path)(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(Error::io(path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Error::io(path))?;
        Ok(Self { listener, path: path.to_owned(), owner: rustix::process::geteuid().as_raw() })
    }
}

impl Listener for DaemonSocket {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == self.owner => return (stream, address),
                    Ok(peer) => tracing::warn!(uid = peer.uid(), "closed a connection of another user"),
                    Err(error) => tracing::warn!(%error, "closed a connection without credentials"),
                },
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for DaemonSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
