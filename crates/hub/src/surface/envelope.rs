//! The envelope over a WebSocket (`/api/envelope/ws`) and, one request at a time, over HTTP (`POST /api/envelope`).

mod post;

use attache_protocol::wire::{channel::Transport, envelope::SUBPROTOCOL};
use axum::{
    Extension,
    body::Body,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::Response,
};

use super::{
    extract::{CallerAddress, MaybeCaller},
    socket,
};
use crate::connection_slot::ConnectionSlot;
use crate::{
    Error, Handle, Result,
    channel::{ChannelDialect, ChannelSession, ConnectionOrigin, check_open},
};

operations!(open, post::take);

/// Open a channel: a WebSocket that carries envelopes
#[utoipa::path(get, path = "/api/envelope/ws", tag = "channels",
    responses((status = 101, description = "A WebSocket")))]
async fn open(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    CallerAddress(address): CallerAddress,
    connection_slot: Option<Extension<ConnectionSlot>>,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response<Body>> {
    let upgrade = upgrade.map_err(not_upgraded)?.protocols([SUBPROTOCOL]);
    by.as_ref().map_or(Ok(()), check_open)?;
    let origin =
        ConnectionOrigin { transport: Transport::Websocket, dialect: ChannelDialect::Envelope, address: Some(address) };
    let session = ChannelSession::new(hub.clone(), origin, by);
    socket::upgrade(upgrade, hub, session, connection_slot.map(|Extension(connection_slot)| connection_slot))
}

pub(super) fn not_upgraded(_: WebSocketUpgradeRejection) -> Error {
    Error::invalid("Upgrade", "must request a WebSocket (version 13)")
}
