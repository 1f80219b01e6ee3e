//! The host's SSH server: one key opens one lease, and only SFTP and attache-fs on that lease's export.
//!
//! There is no shell, no command, no forwarding and no account: the key alone identifies the lease.

use std::{
    borrow::Cow,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use russh::{Limits, MethodKind, MethodSet, Preferred, SshId, cipher, compression, keys::Algorithm, server};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    runtime,
    time::Instant,
};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

mod backpressure;
mod channel;
mod connection;
mod key;
mod lease_keys;
mod severable_stream;
mod subsystem;
mod unauthenticated;

pub(crate) use self::{
    backpressure::RequestBackpressure,
    subsystem::{RequestQueue, Subsystem, SubsystemChannel, SubsystemInbox},
};
use self::{
    connection::{ConnectionThread, SshConnection},
    lease_keys::{ActiveLeases, ConnectionCutter},
    severable_stream::SeverableStream,
    unauthenticated::{UnauthenticatedConnections, UnauthenticatedSlot},
};
pub use self::{
    key::{HostKey, InvalidLeaseKey, LeaseKeyPair, make_key},
    lease_keys::LeaseAdmission,
};
use crate::export::Export;

/// A connection whose client doesn't even answer keepalives is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a silent client gets a keepalive.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// A wrong key is rejected after this time, whatever was wrong with it.
const REJECTION_DELAY: Duration = Duration::from_millis(50);
/// How much can be in flight on a channel: enough for 160 MB/s at 50 ms. Backpressure limits how much is kept in
/// memory.
const CHANNEL_WINDOW: u32 = 8 * 1024 * 1024;

/// What one lease's key opens.
#[derive(Debug)]
pub struct LeaseAccess {
    /// The public key, as one line in OpenSSH format.
    pub key: String,
    /// The first component of every path: a token that reveals nothing about the host's folders.
    pub locator: String,
    pub export: Arc<Export>,
}

/// The limits of the server.
#[derive(Debug, Clone)]
pub struct SshServerOptions {
    /// How long authentication can take.
    pub auth_timeout: Duration,
    /// Connections before authentication. A further one takes the place of another.
    pub max_unauthenticated: usize,
    pub connections_per_lease: usize,
    pub channels_per_connection: usize,
    /// New session keys after this many bytes in one direction.
    pub rekey_after: usize,
}

/// Serves leases to the holders of their keys. Clones share the same state.
#[derive(Debug, Clone)]
pub struct SshServer {
    config: Arc<server::Config>,
    options: Arc<SshServerOptions>,
    leases: Arc<ActiveLeases>,
    unauthenticated: UnauthenticatedConnections,
    numbers: Arc<AtomicU64>,
}

// === impl SshServerOptions ===

impl Default for SshServerOptions {
    fn default() -> Self {
        Self {
            auth_timeout: Duration::from_secs(10),
            max_unauthenticated: 64,
            connections_per_lease: 16,
            channels_per_connection: 4,
            rekey_after: 1 << 30,
        }
    }
}

// === impl SshServer ===

impl SshServer {
    pub fn new(host_key: &HostKey) -> Self {
        Self::with(host_key, SshServerOptions::default())
    }

    pub fn with(host_key: &HostKey, options: SshServerOptions) -> Self {
        let preferred = Preferred {
            key: Cow::Borrowed(&[Algorithm::Ed25519]),
            // The only cipher with hardware support. A client picks the first entry of its own list that we offer, and
            // OpenSSH's list starts with slower ones.
            cipher: Cow::Borrowed(&[cipher::AES_256_GCM]),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        };
        let rekey_after = options.rekey_after.min(1 << 30);
        let config = server::Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-attache")),
            methods: MethodSet::from(&[MethodKind::PublicKey][..]),
            auth_rejection_time: REJECTION_DELAY,
            auth_rejection_time_initial: Some(Duration::ZERO),
            max_auth_attempts: 3,
            keys: vec![host_key.private()],
            limits: Limits::new(rekey_after, rekey_after, Duration::from_secs(3600)),
            window_size: CHANNEL_WINDOW,
            preferred,
            inactivity_timeout: Some(IDLE_TIMEOUT),
            keepalive_interval: Some(KEEPALIVE_INTERVAL),
            nodelay: true,
            ..server::Config::default()
        };
        Self {
            config: Arc::new(config),
            unauthenticated: UnauthenticatedConnections::new(options.max_unauthenticated),
            options: Arc::new(options),
            leases: Arc::default(),
            numbers: Arc::default(),
        }
    }

    /// Admits the holder of a key to an export, until the admission is revoked or dropped.
    pub fn admit(&self, access: LeaseAccess) -> Result<LeaseAdmission, InvalidLeaseKey> {
        self.leases.admit(access)
    }

    /// Serves all connections until `stop`. Returns when the last one is closed.
    pub async fn listen(&self, listener: TcpListener, stop: CancellationToken) {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let served = match accepted {
                Ok((stream, from)) => {
                    self.serve_on_thread(stream, from.to_string(), stop.child_token(), connections.token())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                // Probably out of descriptors or threads. The next connection waits in the kernel.
                tracing::warn!(%error, "failed to serve an SSH connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        connections.close();
        connections.wait().await;
    }

    /// Serves one connection to its end. `from` is its origin, for the log. Dropping the future closes it.
    pub async fn serve<S>(&self, stream: S, from: String)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let cutter = ConnectionCutter { cut: CancellationToken::new(), socket: None };
        let slot = self.unauthenticated.admit(&from, &cutter.cut);
        self.serve_until(stream, from, cutter, ConnectionThread::Shared, slot).await;
    }

    /// Serves a connection on its own thread, so that a file operation can run where its request arrives.
    fn serve_on_thread(
        &self,
        stream: TcpStream,
        from: String,
        cut: CancellationToken,
        running: TaskTrackerToken,
    ) -> io::Result<()> {
        let slot = self.unauthenticated.admit(&from, &cut);
        stream.set_nodelay(true)?;
        let stream = stream.into_std()?;
        let cutter = ConnectionCutter { cut, socket: Some(stream.try_clone()?) };
        let server = self.clone();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("ssh".to_owned()).spawn(move || {
            let _running = running;
            runtime.block_on(async {
                match TcpStream::from_std(stream) {
                    Ok(stream) => server.serve_until(stream, from, cutter, ConnectionThread::Own, slot).await,
                    Err(error) => tracing::warn!(%error, "failed to serve an SSH connection"),
                }
            });
        })?;
        Ok(())
    }

    async fn serve_until<S>(
        &self,
        stream: S,
        from: String,
        cutter: ConnectionCutter,
        seat: ConnectionThread,
        slot: UnauthenticatedSlot,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let deadline = Instant::now() + self.options.auth_timeout;
        let cut = cutter.cut.clone();
        let _cut_when_dropped = cut.clone().drop_guard();
        let (gate, channels, known) =
            (Arc::<RequestBackpressure>::default(), TaskTracker::new(), CancellationToken::new());
        let place = connection::SshConnectionContext {
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            leases: Arc::clone(&self.leases),
            options: Arc::clone(&self.options),
            gate: Arc::clone(&gate),
            cutter: Arc::new(cutter),
            thread: seat,
            authenticated: known.clone(),
            channels: channels.clone(),
        };
        let (stream, visitor) = (SeverableStream::new(stream, gate, &cut), SshConnection::new(place, slot));
        let begun = tokio::time::timeout_at(deadline, server::run_stream(Arc::clone(&self.config), stream, visitor));
        let ended = match begun.await {
            Err(_) => Err("no SSH handshake in time".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Ok(Ok(mut session)) => {
                let is_late = async {
                    tokio::select! {
                        () = known.cancelled() => std::future::pending().await,
                        () = tokio::time::sleep_until(deadline) => {}
                    }
                };
                let ended = tokio::select! {
                    ended = &mut session => ended,
                    () = is_late => {
                        cut.cancel();
                        session.await
                    }
                };
                ended.map_err(|error| error.to_string())
            }
        };
        cut.cancel();
        channels.close();
        channels.wait().await;
        tracing::debug!(%from, reason = ended.err(), "SSH connection ended");
    }
}
