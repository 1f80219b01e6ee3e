//! The daemon, one per home folder: holds the lock, ends what an earlier daemon left behind, and serves the socket and
//! SSH.

use std::{fs::File, net::SocketAddr, path::PathBuf, time::Duration};

use attache_os::{lock, path_error::private_folder};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    Options, api, export::ExportServer, publish, records::DelegationRecords, recover, service::DelegatorService,
    socket::DaemonSocket,
};
use crate::Error;

#[derive(Debug)]
pub struct DelegationDaemon {
    service: DelegatorService,
    socket: DaemonSocket,
    socket_path: PathBuf,
    ssh: TcpListener,
    _lock: File,
}

/// The name of the socket in `$AWCP_HOME`.
pub const SOCKET: &str = "daemon.sock";
const LOCK: &str = "daemon.lock";
/// How long to wait for another daemon that is shutting down.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a shutdown waits for remotes to be notified.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

// === impl DelegationDaemon ===

impl DelegationDaemon {
    /// When this returns, everything is set up. Nothing is served until [`run`](Self::run).
    pub async fn start(options: Options) -> Result<Self, Error> {
        let home = options.home.clone();
        private_folder(&home)?;
        let path = home.join(LOCK);
        let lock = lock::acquire(&path, LOCK_TIMEOUT).await.map_err(Error::io(&path))?;
        let lock = lock.ok_or(Error::DaemonRunning { path })?;
        let listening = |error: std::io::Error| Error::Listen { address: options.ssh_listen, source: error };
        let ssh = TcpListener::bind(options.ssh_listen).await.map_err(listening)?;
        let address: SocketAddr = ssh.local_addr().map_err(listening)?;
        let records = DelegationRecords::open(&home, options.env.clone())?;
        let exports = ExportServer::new(address, options.env.clone());
        // Read before recovery ends more of them.
        let unpublished = records.unpublished()?;
        let service = DelegatorService::new(options, records, exports);
        recover::recover(&service).await?;
        publish::catch_up(&service, &unpublished).await;
        service.keep_pruning();
        service.0.archives.sweep();
        let socket_path = home.join(SOCKET);
        let socket = DaemonSocket::bind(&socket_path)?;
        Ok(Self { service, socket, socket_path, ssh, _lock: lock })
    }

    pub const fn delegator(&self) -> &DelegatorService {
        &self.service
    }

    pub fn socket(&self) -> &std::path::Path {
        &self.socket_path
    }

    pub fn ssh(&self) -> SocketAddr {
        self.service.ssh()
    }

    /// Serves until `stop`, then revokes every export.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { service, socket, socket_path, ssh, _lock } = self;
        let closing = CancellationToken::new();
        let serving =
            axum::serve(socket, api::router(service.clone())).with_graceful_shutdown(closing.clone().cancelled_owned());
        let served = tokio::spawn(async move { serving.await });
        let server = service.0.exports.server.clone();
        let closed = closing.clone();
        let exporting = tokio::spawn(async move { server.listen(ssh, closed).await });
        stop.cancelled().await;
        // Revoke access first, then close the API.
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, service.stop()).await.is_err() {
            tracing::warn!("some remotes were not notified that their delegations ended");
        }
        closing.cancel();
        let ended = tokio::time::timeout(LOCK_TIMEOUT, async { (served.await, exporting.await) }).await;
        if let Ok((Ok(Err(error)), _)) = ended {
            return Err(Error::io(socket_path)(error));
        }
        Ok(())
    }
}
