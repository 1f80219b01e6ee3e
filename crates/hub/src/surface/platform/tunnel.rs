//! `/api/v1/tunnels/{id}`: opens, renews and closes a tunnel, and serves the WebSockets of its two ends.

use attache_protocol::{
    TunnelId,
    wire::tunnel::{OpenTunnelRequest, Tunnel},
};
use axum::{
    Extension,
    body::Body,
    extract::{Request, State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::{HeaderMap, Response, StatusCode, header, request::Parts},
    middleware::Next,
    response::IntoResponse as _,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Error, Handle, Principal, Result,
    connection_slot::ConnectionSlot,
    identity::{AccessGuard, Action, StreamRight},
    surface::{
        extract::{self, AuthenticatedCaller, CallerAddress, JsonBody, PathSegment, PeerAddress, QueryParams, id},
        reply,
    },
    tunnel,
};

/// The largest message. The ends send less, and what is read is passed on immediately.
const MAX_MESSAGE: usize = 1 << 20;
/// Buffer for one read.
const BUFFER: usize = 128 << 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// `host`: this WebSocket belongs to the tunnel's owner and waits for a remote.
    end: Option<String>,
}

operations!(open, join, close);

/// Requests about a tunnel that is open at another node are answered by that one.
pub(super) async fn pass_on(State(hub): State<Handle>, request: Request, next: Next) -> Response<Body> {
    let from = request.extensions().get::<PeerAddress>().map(|PeerAddress(address)| address.ip());
    tunnel::pass_on(&hub, from, request, next).await
}

/// Open a tunnel with an id you choose, or renew it
///
/// Tunnels live in memory: after a hub restart, send the same request again.
#[utoipa::path(put, path = "/api/v1/tunnels/{tunnel}", tag = "tunnels", params(("tunnel" = String, Path)),
    request_body = OpenTunnelRequest, responses((status = 200, body = Tunnel)))]
async fn open(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(tunnel): PathSegment,
    JsonBody(request): JsonBody<OpenTunnelRequest>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.open_tunnel(&by, id(&tunnel, "tunnel")?, request).await?))
}

/// Read one of your tunnels; as a WebSocket, connect one of its two ends
///
/// The host's end sends the owner's credential and `?end=host`, and waits: the text message `paired` says that a remote
/// has connected. The remote's end sends the tunnel's token as `Authorization: Bearer`. From then on, binary messages
/// of at most 1 MiB carry the bytes of one connection.
#[utoipa::path(get, path = "/api/v1/tunnels/{tunnel}", tag = "tunnels", params(("tunnel" = String, Path), Query),
    responses((status = 200, body = Tunnel), (status = 101, description = "A WebSocket")))]
async fn join(
    State(hub): State<Handle>,
    PathSegment(tunnel): PathSegment,
    QueryParams(query): QueryParams<Query>,
    CallerAddress(address): CallerAddress,
    connection_slot: Option<Extension<ConnectionSlot>>,
    parts: Parts,
    upgrade: std::result::Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> HandlerResult {
    let connection_slot = connection_slot.map(|Extension(connection_slot)| connection_slot);
    let is_host = match query.end.as_deref() {
        Some("host") => true,
        Some("remote") | None => false,
        Some(_) => return Err(Error::invalid("end", "must be `host` or `remote`")),
    };
    let Ok(upgrade) = upgrade else {
        let by = owner(&parts, &hub).await?;
        return Ok(reply::json(StatusCode::OK, &hub.tunnel(&by, id(&tunnel, "tunnel")?).await?));
    };
    let tasks = hub.tasks().clone();
    let upgrade =
        upgrade.read_buffer_size(BUFFER).write_buffer_size(0).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    if is_host {
        let by = owner(&parts, &hub).await?;
        let tunnel = hub.own_tunnel(&by, id(&tunnel, "tunnel")?)?;
        // The tunnel ends with the key that opened it, this socket with its own credential.
        let mut guard = AccessGuard::new(&hub, &by, StreamRight::May(Action::OpenTunnel));
        let hold = move |socket| async move {
            tokio::select! {
                () = tunnel::serve_host(hub, tunnel, socket, connection_slot) => {}
                _ = guard.broken() => {}
            }
        };
        return Ok(upgrade.on_upgrade(move |socket| tasks.track_future(hold(socket))));
    }
    let token = bearer(&parts.headers);
    let tunnel = match id(&tunnel, "tunnel").and_then(|id: TunnelId| hub.tunnel_of(id, token.unwrap_or_default())) {
        Ok(tunnel) => tunnel,
        Err(error) => {
            // Limits how often an address can guess.
            hub.attempts().failed(address)?;
            return Err(error);
        }
    };
    if let Some(connection_slot) = &connection_slot {
        connection_slot.accept()?;
    }
    let tunnel_slot = tunnel.take_slot(&hub)?;
    Ok(upgrade.on_upgrade(move |socket| {
        tasks.track_future(tunnel::serve_remote(tunnel, socket, tunnel_slot, connection_slot))
    }))
}

async fn owner(parts: &Parts, hub: &Handle) -> Result<Principal> {
    let by = extract::caller(parts, hub).await?;
    by.ok_or_else(Error::no_credential)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Close a tunnel: all of its connections are cut immediately
#[utoipa::path(delete, path = "/api/v1/tunnels/{tunnel}", tag = "tunnels", params(("tunnel" = String, Path)),
    responses((status = 204)))]
async fn close(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(tunnel): PathSegment,
) -> HandlerResult {
    hub.close_tunnel(&by, id(&tunnel, "tunnel")?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
