//! Opens a WebSocket to the hub, and explains why if it can't.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{error::ErrorBody, wire::envelope::SUBPROTOCOL};
use reqwest::{Url, header::HeaderMap};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::rustls::ClientConfig;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{
        self, client::IntoClientRequest as _, handshake::client::Request, http::HeaderValue, protocol::WebSocketConfig,
    },
};

use crate::{Error, HubAddress, HubClientOptions, HubCredential, Result, hub::headers, tls};

/// How to reach the hub's channel endpoint.
pub(crate) struct ChannelEndpoint {
    address: HubAddress,
    headers: RwLock<HeaderMap>,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
}

pub(crate) type ChannelSocket = WebSocketStream<Box<dyn SocketIo>>;

pub(crate) trait SocketIo: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> SocketIo for T {}

pub(crate) const USER_AGENT: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));
/// Initial read buffer. It grows temporarily for larger frames.
const CHANNEL_BUFFER: usize = 4 << 10;
/// The same for tunnels.
const TUNNEL_BUFFER: usize = 128 << 10;
/// The hub's own frames are bounded by the maximum input of a run.
const MAX_MESSAGE: usize = 64 << 20;

// === impl ChannelEndpoint ===

impl ChannelEndpoint {
    pub(crate) fn new(options: &HubClientOptions) -> Result<Self> {
        let address = HubAddress::of(options)?;
        let tls = match address.is_encrypted() {
            // A WebSocket starts as an HTTP/1.1 request.
            true => Some(Arc::new(tls::config(options, &["http/1.1"])?)),
            false => None,
        };
        let headers = RwLock::new(headers(&options.credential)?);
        Ok(Self { address, headers, tls, limit: options.timeouts.connect })
    }

    /// Uses this credential for subsequent connections.
    pub(crate) fn renew(&self, credential: &HubCredential) -> Result<()> {
        *self.headers.write().unwrap_or_else(PoisonError::into_inner) = headers(credential)?;
        Ok(())
    }

    pub(crate) const fn address(&self) -> &HubAddress {
        &self.address
    }

    pub(crate) fn broken(&self, reason: impl fmt::Display) -> Error {
        Error::Unreachable { address: self.address.origin(), reason: reason.to_string() }
    }

    pub(crate) fn strange(&self, reason: impl fmt::Display) -> Error {
        Error::BadReply { address: self.address.origin(), reason: reason.to_string() }
    }

    /// Opens the connection of a channel.
    pub(crate) async fn open(&self) -> Result<ChannelSocket> {
        self.open_at(self.address.url(&["api", "envelope", "ws"]), Some(SUBPROTOCOL)).await
    }

    /// Opens a connection. Connecting, TLS and the upgrade each have the same time limit. Without a subprotocol it
    /// carries raw bytes, and gets a larger buffer.
    pub(crate) async fn open_at(&self, url: Url, subprotocol: Option<&'static str>) -> Result<ChannelSocket> {
        let late = |_| self.broken("no answer in time");
        let wire = self.connect().await?;
        let buffer = if subprotocol.is_some() { CHANNEL_BUFFER } else { TUNNEL_BUFFER };
        let origin = self.address.origin();
        timeout(self.limit, upgrade(self.request(url, subprotocol)?, wire, &origin, buffer)).await.map_err(late)?
    }

    /// A connection to the hub, of which nothing has been used yet.
    async fn connect(&self) -> Result<Box<dyn SocketIo>> {
        let late = |_| self.broken("no answer in time");
        let (host, port) = self.address.host_and_port();
        let stream = timeout(self.limit, TcpStream::connect((host, port))).await.map_err(late)?;
        let stream = stream.map_err(|error| self.broken(error))?;
        // Frames are small and latency matters.
        stream.set_nodelay(true).map_err(|error| self.broken(error))?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let origin = self.address.origin();
                let connected = tls::connect(config.clone(), host, stream, &origin);
                Box::new(timeout(self.limit, connected).await.map_err(late)??)
            }
        })
    }

    fn request(&self, mut url: Url, subprotocol: Option<&'static str>) -> Result<Request> {
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        url.set_scheme(scheme).map_err(|()| self.broken("the address can't be used for a channel"))?;
        let mut request = url.as_str().into_client_request().map_err(|error| self.broken(error))?;
        let given = request.headers_mut();
        given.extend(self.headers.read().unwrap_or_else(PoisonError::into_inner).clone());
        if let Some(subprotocol) = subprotocol {
            given.insert("sec-websocket-protocol", HeaderValue::from_static(subprotocol));
        }
        given.insert("user-agent", HeaderValue::from_static(USER_AGENT));
        Ok(request)
    }
}

/// Connects to a hub, for a program that speaks HTTP/1.1 with it itself.
pub async fn dial(options: &HubClientOptions) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>> {
    ChannelEndpoint::new(options)?.connect().await
}

/// Upgrades a connection to a WebSocket with the given buffer size.
pub(crate) async fn upgrade(
    request: Request,
    wire: Box<dyn SocketIo>,
    origin: &str,
    buffer: usize,
) -> Result<ChannelSocket> {
    let config = WebSocketConfig::default()
        .read_buffer_size(buffer)
        .write_buffer_size(if buffer == CHANNEL_BUFFER { 0 } else { buffer })
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    match client_async_with_config(request, wire, Some(config)).await {
        Ok((line, _)) => Ok(line),
        Err(error) => Err(refused(origin, error)),
    }
}

fn refused(origin: &str, error: tungstenite::Error) -> Error {
    let broken = |reason: String| Error::Unreachable { address: origin.to_owned(), reason };
    let strange = |reason: String| Error::BadReply { address: origin.to_owned(), reason };
    match error {
        tungstenite::Error::Http(response) => {
            let status = response.status().as_u16();
            let body = response.into_body().unwrap_or_default();
            // Only a hub's own error counts: a proxy's refusal says nothing about the credential.
            match serde_json::from_slice::<ErrorBody>(&body) {
                Ok(_) => Error::from_reply(origin, status, &body),
                Err(_) => strange(format!("status {status} instead of a WebSocket")),
            }
        }
        tungstenite::Error::Io(error) => broken(error.to_string()),
        tungstenite::Error::Protocol(tungstenite::error::ProtocolError::HandshakeIncomplete) => {
            broken("the connection was closed before the answer".to_owned())
        }
        error => strange(format!("it can't open a WebSocket ({error})")),
    }
}
