//! One WebSocket to the hub: how it is opened, and what it says when it cannot be.

use std::{fmt, sync::Arc, time::Duration};

use attache_protocol::{error::Body, wire::envelope::SUBPROTOCOL};
use reqwest::header::HeaderMap;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, rustls::ClientConfig, rustls::pki_types::ServerName};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{self, client::IntoClientRequest as _, http::HeaderValue, protocol::WebSocketConfig},
};

use crate::{Address, Error, HubOptions, Result, hub::headers, tls};

/// How to reach the hub's channel.
pub(crate) struct Way {
    address: Address,
    headers: HeaderMap,
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
}

pub(crate) type Line = WebSocketStream<Box<dyn Wire>>;

pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// Room for what is read at once; a frame that is larger grows it for as long as it takes.
const BUFFER: usize = 4 << 10;
/// The hub's own frames are bounded by what callers may give to a run.
const LARGEST: usize = 64 << 20;

// === impl Way ===

impl Way {
    pub(crate) fn new(options: &HubOptions) -> Result<Self> {
        let address = Address::of(options)?;
        let tls = match address.is_encrypted() {
            // A WebSocket begins as a request of HTTP/1.1.
            true => Some(Arc::new(tls::config(options, &["http/1.1"])?)),
            false => None,
        };
        let headers = headers(&options.credential)?;
        Ok(Self { address, headers, tls, limit: options.timeouts.connect })
    }

    pub(crate) const fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn broken(&self, reason: impl fmt::Display) -> Error {
        Error::Unreachable { address: self.address.origin(), reason: reason.to_string() }
    }

    pub(crate) fn strange(&self, reason: impl fmt::Display) -> Error {
        Error::BadReply { address: self.address.origin(), reason: reason.to_string() }
    }

    /// Opens a line. Connecting, TLS and the upgrade have the same limit each.
    pub(crate) async fn open(&self) -> Result<Line> {
        let late = |_| self.broken("no answer in time");
        let (host, port) = self.address.host_and_port();
        let stream = timeout(self.limit, TcpStream::connect((host, port))).await.map_err(late)?;
        let stream = stream.map_err(|error| self.broken(error))?;
        // A frame is small and somebody waits for it.
        stream.set_nodelay(true).map_err(|error| self.broken(error))?;
        let wire: Box<dyn Wire> = match &self.tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|error| self.broken(error))?;
                let connected = TlsConnector::from(config.clone()).connect(name, stream);
                Box::new(timeout(self.limit, connected).await.map_err(late)?.map_err(|error| {
                    tls::distrusted(&self.address.origin(), &error).unwrap_or_else(|| self.broken(error))
                })?)
            }
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(0)
            .max_message_size(Some(LARGEST))
            .max_frame_size(Some(LARGEST));
        let upgraded = client_async_with_config(self.request()?, wire, Some(config));
        match timeout(self.limit, upgraded).await.map_err(late)? {
            Ok((line, _)) => Ok(line),
            Err(error) => Err(self.refused(error)),
        }
    }

    fn request(&self) -> Result<tungstenite::handshake::client::Request> {
        let mut url = self.address.url(&["api", "envelope", "ws"]);
        let scheme = if self.tls.is_some() { "wss" } else { "ws" };
        url.set_scheme(scheme).map_err(|()| self.broken("the address cannot be used for a channel"))?;
        let mut request = url.as_str().into_client_request().map_err(|error| self.broken(error))?;
        let given = request.headers_mut();
        given.extend(self.headers.clone());
        given.insert("sec-websocket-protocol", HeaderValue::from_static(SUBPROTOCOL));
        given.insert("user-agent", HeaderValue::from_static(concat!("attache/", env!("CARGO_PKG_VERSION"))));
        Ok(request)
    }

    fn refused(&self, error: tungstenite::Error) -> Error {
        match error {
            tungstenite::Error::Http(response) => {
                let status = response.status().as_u16();
                let body = response.into_body().unwrap_or_default();
                // Only a hub's own words count: a proxy's refusal says nothing about the credential.
                match serde_json::from_slice::<Body>(&body) {
                    Ok(_) => Error::from_reply(&self.address.origin(), status, &body),
                    Err(_) => self.strange(format!("status {status} where a WebSocket was asked for")),
                }
            }
            tungstenite::Error::Io(error) => self.broken(error),
            tungstenite::Error::Protocol(tungstenite::error::ProtocolError::HandshakeIncomplete) => {
                self.broken("the connection was closed before the answer")
            }
            error => self.strange(format!("it opens no WebSocket ({error})")),
        }
    }
}
