//! The adapter's port, which every program of this machine can connect to.

use std::{net::SocketAddr, sync::Arc};

use attache_os::local_port::{ConnectionProof, GuardedPort, GuardedStream};
use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::net::TcpListener;

pub(crate) struct AdapterListener(GuardedPort);

/// The connection that a request came over.
#[derive(Debug, Clone)]
pub(crate) struct AdapterConnection(Arc<ConnectionProof>);

// === impl AdapterListener ===

impl AdapterListener {
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self(GuardedPort::new(listener))
    }
}

impl Listener for AdapterListener {
    type Io = GuardedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (GuardedStream, SocketAddr) {
        self.0.next().await
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

// === impl AdapterConnection ===

impl AdapterConnection {
    /// It has shown the secret.
    pub(crate) fn trust(&self) {
        self.0.give();
    }
}

impl Connected<IncomingStream<'_, AdapterListener>> for AdapterConnection {
    fn connect_info(stream: IncomingStream<'_, AdapterListener>) -> Self {
        Self(stream.io().proof())
    }
}
