//! TLS to PostgreSQL with the provider that everything else here uses.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Socket,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};
use tokio_rustls::{
    client,
    rustls::{ClientConfig, pki_types::ServerName},
};

/// Verifies servers as the configuration says.
#[derive(Clone)]
pub(in crate::sql) struct TlsConnector(pub(in crate::sql) Arc<ClientConfig>);

pub(in crate::sql) struct HostConnector {
    config: Arc<ClientConfig>,
    host: ServerName<'static>,
}

pub(in crate::sql) struct EncryptedSocket(client::TlsStream<Socket>);

// === impl TlsConnector ===

impl MakeTlsConnect<Socket> for TlsConnector {
    type Stream = EncryptedSocket;
    type TlsConnect = HostConnector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<HostConnector> {
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(HostConnector { config: Arc::clone(&self.0), host })
    }
}

// === impl HostConnector ===

impl TlsConnect<Socket> for HostConnector {
    type Stream = EncryptedSocket;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedSocket>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let connecting = tokio_rustls::TlsConnector::from(self.config).connect(self.host, socket);
        Box::pin(async move { connecting.await.map(EncryptedSocket) })
    }
}

// === impl EncryptedSocket ===

impl TlsStream for EncryptedSocket {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
