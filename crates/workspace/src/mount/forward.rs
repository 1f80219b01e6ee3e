//! A loopback port whose connections go through a tunnel, because stock ssh doesn't know our tunnels.

use std::{future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::task::AbortOnDropHandle;

/// Bytes in both directions.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for T {}

/// Opens another connection at the far end.
pub type TunnelDial =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Box<dyn ByteStream>>> + Send>> + Send + Sync>;

/// The port. Dropping it closes it and every connection.
#[derive(Debug)]
pub struct PortForward {
    address: SocketAddr,
    _task: AbortOnDropHandle<()>,
}

/// sshfs has one connection, and a second one while it reconnects. Other programs on this machine that connect find
/// only SSH behind the port, and have no key.
const MAX_CONNECTIONS: usize = 4;
/// The most that is read at once. Each piece becomes one message in the tunnel.
const MAX_READ: usize = 128 << 10;

// === impl PortForward ===

impl PortForward {
    pub async fn open(dial: TunnelDial) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, _task: AbortOnDropHandle::new(tokio::spawn(serve(listener, dial))) })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: TcpListener, dial: TunnelDial) {
    // They end with this task.
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                Ok((near, _)) => drop(open.spawn(connect(near, dial.clone()))),
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection for a tunnel");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn connect(mut near: TcpStream, dial: TunnelDial) {
    let _ = near.set_nodelay(true);
    match dial().await {
        Ok(mut far) => {
            if let Err(error) = copy_bidirectional_with_sizes(&mut near, &mut far, MAX_READ, MAX_READ).await {
                tracing::debug!(%error, "a connection through a tunnel broke");
            }
        }
        Err(error) => tracing::warn!(%error, "failed to open a tunnel"),
    }
}
