//! The envelope over a WebSocket (`/api/envelope/ws`) and, one request at a time, over HTTP (`POST /api/envelope`).

mod post;

use attache_protocol::wire::{channel::Transport, envelope::SUBPROTOCOL};
use axum::{
    Extension, Router,
    body::Body,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::Response,
    routing::{get, post},
};

use super::{
    connect,
    extract::{CallerAddress, MaybeCaller},
    socket,
};
use crate::connection_slot::ConnectionSlot;
use crate::{
    Error, Handle, Result,
    channel::{ChannelDialect, ChannelSession, ConnectionOrigin},
};

/// The channels' routes.
pub(super) fn routes() -> Router<Handle> {
    Router::new()
        .route("/api/envelope", post(post::take))
        .route("/api/envelope/ws", get(open))
        .route("/api/a2a/connect", get(connect::connect))
}

async fn open(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    CallerAddress(address): CallerAddress,
    seat: Option<Extension<ConnectionSlot>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response<Body>> {
    let upgrade = upgrade.map_err(not_upgraded)?.protocols([SUBPROTOCOL]);
    let origin =
        ConnectionOrigin { transport: Transport::Websocket, dialect: ChannelDialect::Envelope, address: Some(address) };
    let session = ChannelSession::new(hub.clone(), origin, by);
    socket::upgrade(upgrade, hub, session, seat.map(|Extension(seat)| seat))
}

pub(super) fn not_upgraded(_: WebSocketUpgradeRejection) -> Error {
    Error::invalid("Upgrade", "must request a WebSocket (version 13)")
}
