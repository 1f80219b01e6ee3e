//! Both ends of a hub's tunnel as byte streams: the host's sockets, which wait for a remote, and the remote's.

use std::{
    fmt, io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use attache_protocol::{
    KeyPin, Secret, TunnelId,
    wire::tunnel::{OpenTunnelRequest, Tunnel as State},
};
use aws_lc_rs::digest::{SHA256, digest};
use bytes::{Buf as _, Bytes};
use futures_util::{Sink as _, Stream as _, StreamExt as _};
use reqwest::Method;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _, http::HeaderValue};

use crate::{
    Error, HubClient, HubClientOptions, HubCredential, Result,
    channel::socket::{ChannelEndpoint, ChannelSocket, SocketIo, upgrade},
    egress::EgressGuard,
    hub::{HubRequest, RetrySafety, headers},
    tls,
};

/// Maximum size of one write. The hub accepts messages of 1 MiB.
const MAX_MESSAGE: usize = 256 << 10;
/// How many written bytes may wait to be flushed.
const BUFFER: usize = 128 << 10;

/// The bytes of one connection through a tunnel. Dropping it closes the connection.
pub struct TunnelStream {
    socket: ChannelSocket,
    /// Received but not yet read.
    unread: Bytes,
}

/// How a remote reaches a tunnel whose address someone else chose.
#[derive(Debug, Clone)]
pub struct TunnelDialOptions {
    /// Checks the address. Its policy has the non-public targets that the owner of this machine allows.
    pub guard: EgressGuard,
    /// The only key accepted from the hub, if it is known.
    pub pin: Option<KeyPin>,
    /// A certificate (PEM) to trust in addition to the machine's own.
    pub trusted_certificate: Option<Vec<u8>>,
    /// Time limit for each of connecting, the TLS handshake and the upgrade.
    pub connect: Duration,
}

/// The hash of a token, used to open a tunnel.
pub fn token_sha256(token: &Secret<String>) -> String {
    attache_protocol::digest::hex(digest(&SHA256, token.expose().as_bytes()).as_ref())
}

/// Opens one socket of the host. Returns when a remote has connected, which may take as long as the tunnel lasts. Open
/// another one for the next remote.
pub async fn open_host(hub: &HubClientOptions, id: TunnelId) -> Result<TunnelStream> {
    let endpoint = ChannelEndpoint::new(hub)?;
    let mut url = endpoint.address().url(&["api", "v1", "tunnels", &id.to_string()]);
    url.set_query(Some("end=host"));
    let mut socket = endpoint.open_at(url, None).await?;
    while let Some(message) = socket.next().await {
        match message.map_err(|error| endpoint.broken(error))? {
            Message::Text(text) if text.as_str() == "paired" => return Ok(TunnelStream::new(socket)),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(Some(close)) => {
                return Err(endpoint.broken(format!("the tunnel was closed: {}", close.reason)));
            }
            _ => return Err(endpoint.strange("a tunnel must start with the message `paired`")),
        }
    }
    Err(endpoint.broken("the tunnel was closed"))
}

/// One connection of a remote, to the address in START.
pub async fn open_remote(url: &str, token: &Secret<String>, reach: &TunnelDialOptions) -> Result<TunnelStream> {
    let invalid = |what: String| Error::Invalid {
        what,
        hint: "The owner of this machine can allow non-public addresses in `policy.toml`.".to_owned(),
    };
    let web = match url.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        _ => return Err(invalid("the tunnel's address doesn't start with ws:// or wss://".to_owned())),
    };
    let checked = reach.guard.check(&web).map_err(|error| invalid(format!("the tunnel's address: {error}")))?;
    let origin = checked.origin();
    let broken = |reason: String| Error::Unreachable { address: origin.clone(), reason };
    let late = |_| broken("no answer in time".to_owned());
    let addresses = reach.guard.resolve(&checked).await.map_err(|error| broken(error.to_string()))?;
    let stream = timeout(reach.connect, TcpStream::connect(&addresses[..])).await.map_err(late)?;
    let stream = stream.map_err(|error| broken(error.to_string()))?;
    stream.set_nodelay(true).map_err(|error| broken(error.to_string()))?;
    let wire: Box<dyn SocketIo> = if url.starts_with("wss:") {
        let mut options = HubClientOptions::new(origin.clone(), HubCredential::None);
        (options.pin, options.trusted_certificate) = (reach.pin, reach.trusted_certificate.clone());
        let config = Arc::new(tls::config(&options, &["http/1.1"])?);
        Box::new(
            timeout(reach.connect, tls::connect(config, checked.host_text(), stream, &origin))
                .await
                .map_err(late)??,
        )
    } else {
        Box::new(stream)
    };
    let mut request = url.into_client_request().map_err(|error| broken(error.to_string()))?;
    request.headers_mut().extend(headers(&HubCredential::Key(token.clone()))?);
    request.headers_mut().insert("user-agent", HeaderValue::from_static(crate::channel::socket::USER_AGENT));
    timeout(reach.connect, upgrade(request, wire, &origin, BUFFER)).await.map_err(late)?.map(TunnelStream::new)
}

// === impl HubClient ===

impl HubClient {
    /// Opens or renews a tunnel. Safe to repeat, and necessary after the hub has restarted.
    pub async fn open_tunnel(&self, id: TunnelId, request: &OpenTunnelRequest) -> Result<State> {
        let url = self.api(&["tunnels", &id.to_string()]);
        self.ask(&HubRequest::new(Method::PUT, url).json(request).retry_safety(RetrySafety::Safe)).await
    }

    pub async fn tunnel(&self, id: TunnelId) -> Result<State> {
        self.get(self.api(&["tunnels", &id.to_string()])).await
    }

    /// Closes the tunnel with all its connections.
    pub async fn close_tunnel(&self, id: TunnelId) -> Result<()> {
        self.delete(self.api(&["tunnels", &id.to_string()])).await
    }
}

// === impl TunnelStream ===

impl TunnelStream {
    fn new(socket: ChannelSocket) -> Self {
        Self { socket, unread: Bytes::new() }
    }

    fn socket(&mut self) -> Pin<&mut ChannelSocket> {
        Pin::new(&mut self.socket)
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            if !self.unread.is_empty() {
                let length = self.unread.len().min(buffer.remaining());
                buffer.put_slice(&self.unread[..length]);
                self.unread.advance(length);
                return Poll::Ready(Ok(()));
            }
            match ready!(self.socket().poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.unread = bytes,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Text(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(lost(error))),
            }
        }
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.socket().poll_ready(context)).map_err(lost)?;
        let length = bytes.len().min(MAX_MESSAGE);
        let message = Message::Binary(Bytes::copy_from_slice(&bytes[..length]));
        self.socket().start_send(message).map_err(lost)?;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_flush(context).map_err(lost)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket().poll_close(context).map_err(lost)
    }
}

fn lost(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        error => io::Error::new(io::ErrorKind::BrokenPipe, error),
    }
}

impl fmt::Debug for TunnelStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
