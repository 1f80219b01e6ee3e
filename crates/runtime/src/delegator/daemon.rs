//! The daemon: one per home folder. It holds the lock, ends what a daemon before it lost, and serves the socket and SSH.

use std::{fs::File, net::SocketAddr, path::PathBuf, time::Duration};

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    Options, api, export::ExportServer, publish, records::DelegationRecords, recover, service::DelegatorService,
    socket::DaemonSocket,
};
use crate::{Error, files};

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
/// How long one that is about to end is waited for.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end waits for remotes that have to be told.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

// === impl DelegationDaemon ===

impl DelegationDaemon {
    /// Everything is in place when this returns; nothing is served until [`run`](Self::run).
    pub async fn start(options: Options) -> Result<Self, Error> {
        let home = options.home.clone();
        files::private_folder(&home)?;
        let lock = files::try_lock(&home.join(LOCK), LOCK_TIMEOUT).await.map_err(|error| match error {
            Error::AlreadyRunning { path } => Error::DaemonRunning { path },
            other => other,
        })?;
        let listening = |error: std::io::Error| Error::Listen { address: options.ssh_listen, source: error };
        let ssh = TcpListener::bind(options.ssh_listen).await.map_err(listening)?;
        let address: SocketAddr = ssh.local_addr().map_err(listening)?;
        let records = DelegationRecords::open(&home, options.env.clone())?;
        let ground = ExportServer::new(address, options.env.clone());
        // Before any more of them end.
        let unpublished = records.unpublished()?;
        let desk = DelegatorService::new(options, records, ground);
        recover::recover(&desk).await?;
        publish::catch_up(&desk, &unpublished).await;
        desk.prune();
        let socket_path = home.join(SOCKET);
        let socket = DaemonSocket::bind(&socket_path)?;
        Ok(Self { service: desk, socket, socket_path, ssh, _lock: lock })
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

    /// Serves until `stop`; then takes back whatever is lent.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Error> {
        let Self { service: desk, socket, socket_path, ssh, _lock } = self;
        let closing = CancellationToken::new();
        let serving =
            axum::serve(socket, api::router(desk.clone())).with_graceful_shutdown(closing.clone().cancelled_owned());
        let served = tokio::spawn(async move { serving.await });
        let server = desk.0.exports.server.clone();
        let cut = closing.clone();
        let lending = tokio::spawn(async move { server.listen(ssh, cut).await });
        stop.cancelled().await;
        // First what is lent, then whoever wants to know.
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, desk.stop()).await.is_err() {
            tracing::warn!("some remotes were not told that it is over");
        }
        closing.cancel();
        let ended = tokio::time::timeout(LOCK_TIMEOUT, async { (served.await, lending.await) }).await;
        if let Ok((Ok(Err(error)), _)) = ended {
            return Err(Error::io(socket_path)(error));
        }
        Ok(())
    }
}
