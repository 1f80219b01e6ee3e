//! Serves the endpoint: HTTP/1.1, to a limited number of connections.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// Each delegator listens to one stream of events, and asks now and then. More have to wait.
const MAX_CONNECTIONS: usize = 64;
/// How long the head of a request may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_HEADERS: usize = 64;
const MAX_HEAD: usize = 64 << 10;
/// After a connection couldn't be accepted: the process may have too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Until it is dropped, with all connections.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = router.clone();
                connections.spawn(async move {
                    let _place = place;
                    connection(stream, router).await;
                });
            }
            Err(error) => accept_failed(&error).await,
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    let mut http = builder.http1();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of a delegator ended");
    }
}

async fn accept_failed(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}
