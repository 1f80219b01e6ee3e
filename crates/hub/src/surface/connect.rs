//! `/api/a2a/connect`: a device's single outbound connection. Envelopes if the client requests them, plain frames
//! otherwise.

use attache_protocol::wire::{channel::Transport, envelope::SUBPROTOCOL};
use axum::{
    Extension,
    body::Body,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, Response},
};

use super::{
    envelope::not_upgraded,
    extract::{CallerAddress, MaybeCaller},
    socket,
};
use crate::connection_slot::ConnectionSlot;
use crate::{
    Error, Handle, Result,
    channel::{ChannelDialect, ChannelSession, ConnectionOrigin, check_open},
    identity::Action,
};

operations!(open);

/// Connect a device or program: a WebSocket that carries its channel
///
/// With the subprotocol `attache.envelope.v1` it carries envelopes (see docs/channels.md), without one plain frames.
#[utoipa::path(get, path = "/api/a2a/connect", tag = "channels",
    params(("Sec-WebSocket-Protocol" = Option<String>, Header)),
    responses((status = 101, description = "A WebSocket")))]
async fn open(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    CallerAddress(address): CallerAddress,
    connection_slot: Option<Extension<ConnectionSlot>>,
    headers: HeaderMap,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response<Body>> {
    let upgrade = upgrade.map_err(not_upgraded)?;
    by.as_ref().map_or(Ok(()), check_open)?;
    let connection_slot = connection_slot.map(|Extension(connection_slot)| connection_slot);
    let origin = |dialect| ConnectionOrigin { transport: Transport::Websocket, dialect, address: Some(address) };
    let asks = headers.contains_key("sec-websocket-protocol");
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    if upgrade.selected_protocol().is_some() {
        let session = ChannelSession::new(hub.clone(), origin(ChannelDialect::Envelope), by);
        return socket::upgrade(upgrade, hub, session, connection_slot);
    }
    if asks {
        return Err(Error::invalid("Sec-WebSocket-Protocol", "must be `attache.envelope.v1` or absent"));
    }
    let Some(by) = by else {
        return Err(Error::no_credential());
    };
    by.may(Action::Work)?.device()?;
    let session = ChannelSession::new(hub.clone(), origin(ChannelDialect::Plain), Some(by));
    socket::upgrade(upgrade, hub, session, connection_slot)
}
