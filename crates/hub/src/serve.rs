//! One port: HTTP/1.1 and HTTP/2 by prior knowledge, a cap on connections, time for headers, and a graceful end.

use std::{future::Future, io, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    Handle,
    surface::{
        limits::{Edge, Port},
        seat::Seat,
    },
};

const MAX_HEADERS: usize = 100;
const HEADER_BYTES: usize = 64 * 1024;
/// With this, HTTP/2 by prior knowledge begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// After an accept that failed, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The two ways of speaking HTTP on one port.
#[derive(Clone)]
struct Speakers {
    one: Builder<TokioExecutor>,
    two: Builder<TokioExecutor>,
}

/// Serves the router on the listener until `shutdown` resolves; then stops accepting, ends long waits and streams, lets
/// requests in flight finish, and closes the store.
pub async fn serve(listener: TcpListener, router: Router, hub: Handle, shutdown: impl Future<Output = ()>) {
    let port = Port::new(hub.clone(), router);
    let speakers = Speakers::new(hub.options().header_timeout);
    let seats = Arc::new(Semaphore::new(hub.options().max_connections));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => match seats.clone().try_acquire_owned() {
                    Ok(permit) => {
                        let edge = port.edge(peer, Seat::new(&hub, permit));
                        connections.spawn(connect(hub.clone(), speakers.clone(), stream, edge));
                    }
                    Err(_) => hub.metrics().connections_refused.add(1),
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
        tracing::warn!("some requests did not end in time and were cut");
    }
    connections.shutdown().await;
    hub.stop().await;
}

/// One connection from its first byte to its end.
async fn connect(hub: Handle, speakers: Speakers, stream: TcpStream, edge: Edge) {
    let _ = stream.set_nodelay(true);
    let first = tokio::select! {
        first = begins_with_preface(&stream, hub.options().header_timeout) => first,
        () = hub.drained() => Err(io::ErrorKind::ConnectionAborted.into()),
    };
    if let Ok(preface) = first {
        let speaker = if preface { &speakers.two } else { &speakers.one };
        let mut connection = pin!(speaker.serve_connection_with_upgrades(TokioIo::new(stream), edge));
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = hub.drained() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Looks at the first bytes without taking them. A client that sends nothing does not keep its seat.
async fn begins_with_preface(stream: &TcpStream, limit: Duration) -> io::Result<bool> {
    let until = Instant::now() + limit;
    let mut first = [0; PREFACE.len()];
    loop {
        let looked = tokio::time::timeout_at(until, stream.peek(&mut first)).await;
        let seen = looked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if seen == first.len() || seen == 0 || !PREFACE.starts_with(&first[..seen]) {
            return Ok(seen == first.len() && first == *PREFACE);
        }
        // A first packet that ends within the greeting is rare enough to wait for its rest like this.
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

// === impl Speakers ===

impl Speakers {
    fn new(header_timeout: Duration) -> Self {
        let mut one = Builder::new(TokioExecutor::new()).http1_only();
        one.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_headers(MAX_HEADERS)
            .max_buf_size(HEADER_BYTES);
        let mut two = Builder::new(TokioExecutor::new()).http2_only();
        two.http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
            .max_concurrent_streams(256)
            .keep_alive_interval(Duration::from_secs(30))
            .keep_alive_timeout(Duration::from_secs(20));
        Self { one, two }
    }
}
