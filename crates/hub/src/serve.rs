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
/// The first byte of a TLS handshake. No plain HTTP request starts with it.
const TLS_HANDSHAKE_BYTE: u8 = 0x16;
/// The delay after a failed accept, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection after its first bytes.
enum AcceptedConnection {
    Plain(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>, Option<Fingerprint>),
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

/// Serves the router on the listener until `shutdown` resolves and the delay is over. Then it stops accepting, ends long waits and streams,
/// lets requests in flight finish, and closes the store.
pub async fn serve(listener: TcpListener, router: Router, hub: Handle, shutdown: impl Future<Output = ()>) {
    let port = EdgeServiceFactory::new(hub.clone(), router);
    let server = http_server(hub.options());
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
                        connections.spawn(connect(hub.clone(), server.clone(), stream, port.edge(peer, connection_slot)));
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
async fn connect(hub: Handle, server: Builder<StreamExecutor>, stream: TcpStream, edge: EdgeService) {
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
        Ok(AcceptedConnection::Plain(stream)) => serve_connection(terms, &server, stream, edge).await,
        Ok(AcceptedConnection::Encrypted(stream, client)) => {
            serve_connection(terms, &server, stream, edge.of_client(client)).await;
        }
        Ok(AcceptedConnection::Mistaken(stream)) => {
            serve_connection(terms, &server, stream, service_fn(say_https)).await;
        }
        Err(error) => tracing::debug!(%error, "a connection failed to start"),
    }
}

/// Performs the TLS handshake if needed.
async fn open(hub: &Handle, stream: TcpStream, until: Instant) -> io::Result<AcceptedConnection> {
    let Some(tls) = &hub.options().tls else {
        return Ok(AcceptedConnection::Plain(stream));
    };
    let mut first = [0];
    if peek(&stream, &mut first, until).await? == 1 && first != [TLS_HANDSHAKE_BYTE] {
        return Ok(AcceptedConnection::Mistaken(stream));
    }
    let stream = timeout_at(until, tls.accept(stream)).await.map_err(|_| late())??;
    let client = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(Fingerprint::of);
    Ok(AcceptedConnection::Encrypted(Box::new(stream), client))
}

/// Serves requests until either side closes, the hub stops, or the connection is evicted. A connection without a
/// request also ends at its deadline, whatever version it uses.
async fn serve_connection<I, S>(terms: ConnectionContext<'_>, server: &Builder<StreamExecutor>, stream: I, service: S)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    let ConnectionContext { hub, connection_slot, until } = terms;
    let stream = TokioIo::new(MeteredStream::new(stream, connection_slot.clone(), hub.options().response_timeout));
    let mut connection = pin!(server.serve_connection_with_upgrades(stream, service));
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

async fn peek(stream: &TcpStream, first: &mut [u8], until: Instant) -> io::Result<usize> {
    timeout_at(until, stream.peek(first)).await.map_err(|_| late())?
}

fn late() -> io::Error {
    io::ErrorKind::TimedOut.into()
}

/// Serves HTTP/1 and HTTP/2, whichever the client begins with. A client that stops in between is waited for without
/// looking again and again, until its connection's deadline.
fn http_server(options: &Options) -> Builder<StreamExecutor> {
    let mut server = Builder::new(StreamExecutor::new(options.response_timeout));
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(HEADER_BYTES);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(H2_HEADER_BYTES)
        .max_concurrent_streams(H2_MAX_STREAMS)
        // What a client may send before it is read.
        .initial_stream_window_size(H2_STREAM_WINDOW)
        .initial_connection_window_size(H2_CONNECTION_WINDOW)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    server
}
