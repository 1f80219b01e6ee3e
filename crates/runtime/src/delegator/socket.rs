//! The daemon's socket: in a private folder, of mode 0600, and deaf to every other user of this machine all the same.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};

use crate::Error;

/// Only connections of our own user come out of it.
#[derive(Debug)]
pub(super) struct DaemonSocket {
    listener: UnixListener,
    path: PathBuf,
    owner: u32,
}

/// A path of a socket is at most this long, whatever is shown by `ls`.
pub const MAX_SOCKET_PATH: usize = 100;

// === impl DaemonSocket ===

impl DaemonSocket {
    /// Whoever holds the daemon's lock may replace a socket that a daemon before it left behind.
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
                    Ok(peer) => tracing::warn!(uid = peer.uid(), "another user's connection to the daemon is closed"),
                    Err(error) => tracing::warn!(%error, "a connection of nobody is closed"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
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
