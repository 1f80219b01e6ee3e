//! `/api/a2a/connect`: a device's one outbound connection. Envelopes for a client that asks for them, plain frames for others.

use attache_protocol::wire::{channel::Transport, envelope::SUBPROTOCOL};
use axum::{
    Extension,
    body::Body,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, Response},
};

use super::{
    envelope::not_upgraded,
    extract::{From, MaybeCaller},
    seat::Seat,
    socket,
};
use crate::{
    Error, Handle, Result,
    channel::{Dialect, Origin, Session},
    identity::Action,
};

pub(super) async fn connect(
    State(hub): State<Handle>,
    MaybeCaller(by): MaybeCaller,
    From(address): From,
    seat: Option<Extension<Seat>>,
    headers: HeaderMap,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response<Body>> {
    let upgrade = upgrade.map_err(not_upgraded)?;
    let seat = seat.map(|Extension(seat)| seat);
    let origin = |dialect| Origin { transport: Transport::Websocket, dialect, address: Some(address) };
    let asks = headers.contains_key("sec-websocket-protocol");
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    if upgrade.selected_protocol().is_some() {
        let session = Session::new(hub.clone(), origin(Dialect::Envelope), by);
        return Ok(socket::upgrade(upgrade, hub, session, seat));
    }
    if asks {
        return Err(Error::invalid("Sec-WebSocket-Protocol", "must be `attache.envelope.v1`, or be left out"));
    }
    let Some(by) = by else {
        return Err(Error::unauthenticated("The request carries no credential."));
    };
    by.may(Action::Work)?;
    by.device()?;
    let session = Session::new(hub.clone(), origin(Dialect::Plain), Some(by));
    Ok(socket::upgrade(upgrade, hub, session, seat))
}
