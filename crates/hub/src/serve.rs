//! Serves the port: HTTP/1.1 and HTTP/2, plain or over TLS, connection limits, header timeouts, and graceful shutdown.

use std::{convert::Infallible, future::Future, io, pin::pin, sync::Arc, time::Duration};

use attache_protocol::Code;
use axum::{
    Router,
    http::{HeaderValue, Request, Response, header},
    response::IntoResponse as _,
};
use hyper::{
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Error, Handle, Options,
    connection_slot::{ConnectionSlot, ConnectionSlots},
    surface::{
        limits::{EdgeService, EdgeServiceFactory, MAX_HEADERS},
        metered::MeteredStream,
        outgoing::{ResponseBody, StreamExecutor},
    },
    tls::Fingerprint,
};

const HEADER_BYTES: usize = 64 * 1024;
/// Over HTTP/2, names and values that were sent before arrive as a byte each, also in trailers.
const H2_HEADER_BYTES: u32 = 16 * 1024;
const H2_STREAM_WINDOW: u32 = 256 * 1024;
const H2_CONNECTION_WINDOW: u32 = 512 * 1024;
const H2_MAX_STREAMS: u32 = 128;
/// The start of HTTP/2 with prior knowledge.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS handshake. No plain HTTP request starts with it.
const TLS_HANDSHAKE_BYTE: u8 = 0x16;
/// The delay after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The HTTP/1 and HTTP/2 servers of the port.
#[derive(Clone)]
struct HttpServers {
    one: Builder<StreamExecutor>,
    two: Builder<StreamExecutor>,
}

/// A connection after its first bytes.
enum AcceptedConnection {
    Plain(TcpStream, HttpVersion),
    Encrypted(Box<TlsStream<TcpStream>>, HttpVersion, Option<Fingerprint>),
    /// Plain HTTP on a TLS port.
    Mistaken(TcpStream),
}

/// The lifetime of a connection.
#[derive(Clone, Copy)]
struct ConnectionContext<'a> {
    hub: &'a Handle,
    connection_slot: &'a ConnectionSlot,
    /// When it must have sent a request.
    until: Instant,
}

#[derive(Debug, Clone, Copy)]
enum HttpVersion {
    One,
    Two,
}

/// Serves the router on the listener until `shutdown` resolves and the delay is over. Then it stops accepting, ends long waits and streams,
/// lets requests in flight finish, and closes the store.
pub async fn serve(listener: TcpListener, router: Router, hub: Handle, shutdown: impl Future<Output = ()>) {
    let port = EdgeServiceFactory::new(hub.clone(), router);
    let speakers = HttpServers::new(hub.options());
    let connection_slots = Arc::new(ConnectionSlots::new(hub.options()));
    let mut connections = JoinSet::new();
    let _watching = hub.options().tls.clone().map(|tls| {
        let every = hub.options().certificate_every;
        AbortOnDropHandle::new(tokio::spawn(tls.watch(every, hub.env().clone())))
    });
    let mut shutdown = pin!(async {
        shutdown.await;
        hub.announce_shutdown();
        sleep(hub.options().shutdown_delay).await;
    });
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match connection_slots.admit(&hub, peer.ip()) {
                    Some(connection_slot) => {
                        connections.spawn(connect(hub.clone(), speakers.clone(), stream, port.edge(peer, connection_slot)));
                    }
                    None => hub.metrics().connections_refused.add(1),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    hub.drain();
    let rest = async { while connections.join_next().await.is_some() {} };
    if timeout(hub.options().drain_limit, rest).await.is_err() {
        tracing::warn!("some requests did not finish in time and were cut");
    }
    connections.shutdown().await;
    hub.stop().await;
}

/// One connection from its first byte to its end.
async fn connect(hub: Handle, speakers: HttpServers, stream: TcpStream, edge: EdgeService) {
    let _ = stream.set_nodelay(true);
    let until = Instant::now() + hub.options().header_timeout;
    let connection_slot = edge.connection_slot().clone();
    let opened = tokio::select! {
        opened = open(&hub, stream, until) => opened,
        () = hub.drained() => Err(io::ErrorKind::ConnectionAborted.into()),
        () = connection_slot.evicted() => Err(io::ErrorKind::ConnectionAborted.into()),
    };
    let terms = ConnectionContext { hub: &hub, connection_slot: &connection_slot, until };
    match opened {
        Ok(AcceptedConnection::Plain(stream, version)) => {
            serve_connection(terms, speakers.of(version), stream, edge).await;
        }
        Ok(AcceptedConnection::Encrypted(stream, version, client)) => {
            serve_connection(terms, speakers.of(version), stream, edge.of_client(client)).await;
        }
        Ok(AcceptedConnection::Mistaken(stream)) => {
            serve_connection(terms, &speakers.one, stream, service_fn(say_https)).await;
        }
        Err(error) => tracing::debug!(%error, "a connection failed to start"),
    }
}

/// Detects the protocol and performs the TLS handshake if needed.
async fn open(hub: &Handle, stream: TcpStream, until: Instant) -> io::Result<AcceptedConnection> {
    let Some(tls) = &hub.options().tls else {
        let version = if begins_with_preface(&stream, until).await? { HttpVersion::Two } else { HttpVersion::One };
        return Ok(AcceptedConnection::Plain(stream, version));
    };
    let mut first = [0];
    if peek(&stream, &mut first, until).await? == 1 && first != [TLS_HANDSHAKE_BYTE] {
        return Ok(AcceptedConnection::Mistaken(stream));
    }
    let stream = timeout_at(until, tls.accept(stream)).await.map_err(|_| late())??;
    let session = stream.get_ref().1;
    let version = if session.alpn_protocol() == Some(b"h2") { HttpVersion::Two } else { HttpVersion::One };
    let client = session.peer_certificates().and_then(|chain| chain.first()).map(Fingerprint::of);
    Ok(AcceptedConnection::Encrypted(Box::new(stream), version, client))
}

/// Serves requests until either side closes, the hub stops, or the connection is evicted. A connection without a
/// request also ends at its deadline, whatever version it uses.
async fn serve_connection<I, S>(terms: ConnectionContext<'_>, speaker: &Builder<StreamExecutor>, stream: I, service: S)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    let ConnectionContext { hub, connection_slot, until } = terms;
    let stream = TokioIo::new(MeteredStream::new(stream, connection_slot.clone(), hub.options().response_timeout));
    let mut connection = pin!(speaker.serve_connection_with_upgrades(stream, service));
    let (mut is_draining, mut is_looked_at) = (false, false);
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            () = hub.drained(), if !is_draining => {
                is_draining = true;
                connection.as_mut().graceful_shutdown();
            }
            () = connection_slot.evicted() => return,
            () = sleep_until(until), if !is_looked_at => {
                is_looked_at = true;
                if !connection_slot.has_begun() {
                    return;
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke");
    }
}

async fn say_https(_: Request<Incoming>) -> Result<Response<ResponseBody>, Infallible> {
    let error = Error::new(Code::InvalidRequest, "This port uses TLS, but the request was plain HTTP.")
        .hint("Use the same address with https:// (or wss://).");
    let mut response = error.into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(response.map(ResponseBody::from))
}

/// Peeks at the first bytes. A client that sends nothing doesn't keep its slot.
async fn begins_with_preface(stream: &TcpStream, until: Instant) -> io::Result<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let seen = peek(stream, &mut first, until).await?;
        if seen == first.len() || seen == 0 || !HTTP2_PREFACE.starts_with(&first[..seen]) {
            return Ok(seen == first.len() && first == *HTTP2_PREFACE);
        }
        // A first packet that ends within the preface is rare, so waiting like this is fine.
        if Instant::now() >= until {
            return Err(late());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn peek(stream: &TcpStream, first: &mut [u8], until: Instant) -> io::Result<usize> {
    timeout_at(until, stream.peek(first)).await.map_err(|_| late())?
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

// === impl HttpServers ===

impl HttpServers {
    fn new(options: &Options) -> Self {
        let executor = StreamExecutor::new(options.response_timeout);
        let mut one = Builder::new(executor).http1_only();
        one.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_headers(MAX_HEADERS)
            .max_buf_size(HEADER_BYTES);
        let mut two = Builder::new(executor).http2_only();
        two.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(H2_HEADER_BYTES)
            .max_concurrent_streams(H2_MAX_STREAMS)
            // What a client may send before it is read.
            .initial_stream_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        Self { one, two }
    }

    const fn of(&self, version: HttpVersion) -> &Builder<StreamExecutor> {
        match version {
            HttpVersion::One => &self.one,
            HttpVersion::Two => &self.two,
        }
    }
}
