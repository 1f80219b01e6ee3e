//! Tunnels that are open at another node: a request about one is passed on to that node, and so are the bytes of its
//! WebSocket. The other node does everything, as if it had been asked itself.

use std::{net::IpAddr, time::Duration};

use attache_client::{HubClientOptions, HubCredential, dial};
use attache_protocol::{Code, KeyPin, NodeId, Timestamp, TunnelId};
use attache_store::record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit};
use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header},
    middleware::Next,
    response::IntoResponse as _,
};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::{io::copy_bidirectional_with_sizes, time::timeout};

use super::{RelayedTunnel, URL};
use crate::{Error, Handle, Result, connection_slot::ConnectionSlot, error::about};

/// Where a tunnel is open, as nodes share it.
#[derive(Debug, Serialize, Deserialize)]
struct TunnelLocation {
    node: NodeId,
    url: String,
    pin: Option<KeyPin>,
    /// Whose tunnel it is.
    owner: String,
}

/// What a node says of a request that it passes on, sealed with the key that all nodes have.
#[derive(Debug, Serialize, Deserialize)]
struct ForwardedRequest {
    path: String,
    address: Option<IpAddr>,
}

/// Says that the request comes from another node, and from whom that one has it.
const FORWARDED: HeaderName = HeaderName::from_static("x-attache-forwarded");
const CONTEXT: &str = "forwarded_request";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the other node may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
const BUFFER: usize = 128 << 10;

// === impl Handle ===

impl Handle {
    /// Tells the other nodes that a tunnel is open here, unless somebody else has one with this id.
    pub(super) async fn claim_tunnel(&self, tunnel: &RelayedTunnel, expires_at: Timestamp) -> Result<()> {
        let (Some(node), Some(url)) = (self.node(), self.node_url()) else { return Ok(()) };
        let owner = tunnel.owner.1.to_string();
        if self.tunnel_location(tunnel.id).await?.is_some_and(|location| location.owner != owner) {
            return Err(Error::not_found("tunnel"));
        }
        let location = TunnelLocation { node, url, pin: self.options().needed_pin(), owner };
        let value = SharedValue {
            kind: SharedValueKind::Tunnel,
            name: tunnel.id.to_string(),
            tenant: tunnel.owner.0,
            holder: node.to_string(),
            value: serde_json::to_vec(&location).map_err(|error| Error::internal(&error))?,
            expires_at,
        };
        self.store().keep_value(value, SharedValueLimit::None, self.now()).await.map_err(about("tunnel"))?;
        Ok(())
    }

    /// The tunnel has ended here. If it was opened again at another node meanwhile, it stays that one's.
    pub(super) async fn release_tunnel(&self, id: TunnelId) {
        if self.local_node().is_none() {
            return;
        }
        if let Ok(Some(location)) = self.tunnel_location(id).await
            && Some(location.node) == self.node()
        {
            let now = self.now();
            let _ = self.store().take_value(SharedValueKind::Tunnel, &id.to_string(), now, now).await;
        }
    }

    async fn tunnel_location(&self, id: TunnelId) -> Result<Option<TunnelLocation>> {
        let found = self.store().shared_value(SharedValueKind::Tunnel, &id.to_string(), self.now()).await;
        Ok(found.map_err(about("tunnel"))?.and_then(|found| serde_json::from_slice(&found.value).ok()))
    }

    /// Where other nodes reach this one.
    fn node_url(&self) -> Option<String> {
        self.options().nodes.as_ref()?.url.clone()
    }

    /// Whether another node has ended the delegation of a tunnel. Whoever ends it here also cuts its tunnels.
    pub(super) async fn is_ended_elsewhere(&self, tunnel: &RelayedTunnel) -> bool {
        self.local_node().is_some() && self.has_delegation_ended(tunnel.owner.0, tunnel.delegation).await
    }

    /// The address that a request comes from, if another node has passed it on and says so.
    pub(crate) fn forwarded_by_node(&self, headers: &HeaderMap, uri: &Uri) -> Option<IpAddr> {
        self.node_that_forwards(headers, uri)?.address
    }

    /// Anyone can send the header. Only its seal proves that it comes from a node.
    fn node_that_forwards(&self, headers: &HeaderMap, uri: &Uri) -> Option<ForwardedRequest> {
        self.local_node()?;
        let sealed = Base64UrlUnpadded::decode_vec(headers.get(FORWARDED)?.to_str().ok()?).ok()?;
        let from: ForwardedRequest = serde_json::from_slice(self.unseal(CONTEXT, &sealed).ok()?.expose()).ok()?;
        (from.path == uri.path()).then_some(from)
    }
}

/// Answers a request from this address if it is about a tunnel that is open at another node.
pub(crate) async fn pass_on(hub: &Handle, from: Option<IpAddr>, request: Request, next: Next) -> Response<Body> {
    let Some((node, id)) = hub.local_node().zip(tunnel_of(request.uri())) else { return next.run(request).await };
    if hub.tunnels().find(id).is_some() || hub.node_that_forwards(request.headers(), request.uri()).is_some() {
        return next.run(request).await;
    }
    match hub.tunnel_location(id).await {
        Ok(Some(location)) if Some(location.node) != hub.node() && node.may_serve(hub, location.node).await => {
            forward(hub, &location, from, request, next).await
        }
        Ok(_) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn tunnel_of(uri: &Uri) -> Option<TunnelId> {
    uri.path().strip_prefix(URL)?.parse().ok()
}

/// If the node can't be reached, the tunnel has ended with it, and this one may open it again.
async fn forward(
    hub: &Handle,
    location: &TunnelLocation,
    from: Option<IpAddr>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let mut options = HubClientOptions::new(location.url.clone(), HubCredential::None);
    (options.pin, options.timeouts.connect) = (location.pin, CONNECT_TIMEOUT);
    let connected = match dial(&options).await {
        Ok(stream) => http1::handshake::<_, Body>(TokioIo::new(stream)).await.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    let (mut sender, connection) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            tracing::info!(node.id = %location.node, error, "the node of a tunnel can't be reached");
            return next.run(request).await;
        }
    };
    hub.spawn_task({
        let hub = hub.clone();
        async move {
            tokio::select! {
                _ = connection.with_upgrades() => {}
                () = hub.drained() => {}
            }
        }
    });
    let ours = request.extensions_mut().remove::<OnUpgrade>();
    let slot = request.extensions().get::<ConnectionSlot>().cloned();
    if let Err(error) = address(hub, location, from, &mut request) {
        return error.into_response();
    }
    let Ok(Ok(answered)) = timeout(ANSWER_TIMEOUT, sender.send_request(request)).await else {
        return unreachable().into_response();
    };
    if answered.status() == StatusCode::SWITCHING_PROTOCOLS
        && let Some(ours) = ours
    {
        // The other node knows the caller, so this connection doesn't count as unauthenticated.
        if let Some(Err(error)) = slot.as_ref().map(ConnectionSlot::accept) {
            return error.into_response();
        }
        return join(hub, ours, answered, slot);
    }
    answered.map(Body::new)
}

fn unreachable() -> Error {
    Error::new(Code::Overloaded, "The node that serves this tunnel does not respond.").hint("Try again.")
}

/// Addresses the request to the node, and says where it comes from.
fn address(hub: &Handle, location: &TunnelLocation, from: Option<IpAddr>, request: &mut Request) -> Result<()> {
    let path = request.uri().path().to_owned();
    let from = ForwardedRequest { path, address: from };
    let sealed = hub.seal(CONTEXT, &serde_json::to_vec(&from).map_err(|error| Error::internal(&error))?);
    let authority = location.url.split_once("://").map_or(location.url.as_str(), |(_, authority)| authority);
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| Error::internal(&error));
    let (host, sealed) = (value(authority)?, value(&Base64UrlUnpadded::encode_string(&sealed))?);
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    *request.uri_mut() = target.parse().map_err(|error| Error::internal(&error))?;
    *request.version_mut() = hyper::Version::HTTP_11;
    request.headers_mut().insert(header::HOST, host);
    request.headers_mut().insert(FORWARDED, sealed);
    Ok(())
}

/// Relays the two upgraded connections, and returns the answer that begins it.
fn join(
    hub: &Handle,
    ours: OnUpgrade,
    mut answered: Response<Incoming>,
    slot: Option<ConnectionSlot>,
) -> Response<Body> {
    let theirs = hyper::upgrade::on(&mut answered);
    let drained = hub.clone();
    hub.spawn_task(async move {
        let relay = async {
            let (Ok(ours), Ok(theirs)) = tokio::join!(ours, theirs) else { return };
            let (mut ours, mut theirs) = (TokioIo::new(ours), TokioIo::new(theirs));
            let _ = copy_bidirectional_with_sizes(&mut ours, &mut theirs, BUFFER, BUFFER).await;
        };
        tokio::select! {
            () = relay => {}
            () = drained.drained() => {}
        }
        drop(slot);
    });
    answered.map(|_| Body::empty())
}
