//! `/healthz`, `/readyz` and `/metrics`, for hub operators.

use attache_protocol::wire::system::HubHealth;
use axum::{
    body::Body,
    extract::{FromRequestParts as _, State},
    http::{HeaderValue, Response, StatusCode, header, request::Parts},
};

use crate::{
    Handle, Result,
    identity::Action,
    metrics::text,
    surface::{PeerAddress, extract::AuthenticatedCaller, reply},
};

operations!(healthz, readyz, metrics);

/// Check that the process is alive, and how durable an acknowledged write is
#[utoipa::path(get, path = "/healthz", tag = "system", responses((status = 200, body = HubHealth)), security(()))]
async fn healthz(State(hub): State<Handle>) -> Response<Body> {
    reply::json(StatusCode::OK, &hub.checked_health().await)
}

/// Check that the hub accepts and can store work; 503 with the reason if not
#[utoipa::path(get, path = "/readyz", tag = "system", responses((status = 200, body = HubHealth)), security(()))]
async fn readyz(State(hub): State<Handle>) -> Result<Response<Body>> {
    hub.ready().await?;
    Ok(reply::json(StatusCode::OK, &hub.checked_health().await))
}

/// Read counters, backlog and store metrics as Prometheus text; open to this machine, otherwise requires an admin's key
#[utoipa::path(get, path = "/metrics", tag = "system", responses((status = 200, content_type = "text/plain", body = String)))]
async fn metrics(State(hub): State<Handle>, mut parts: Parts) -> Result<Response<Body>> {
    if !is_local(&hub, &parts) {
        let AuthenticatedCaller(by) = AuthenticatedCaller::from_request_parts(&mut parts, &hub).await?;
        by.may_all(Action::SeeMetrics)?;
    }
    let mut response = Response::new(Body::from(text(&hub).await));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Whether the request must come from this machine. A local proxy in front of the hub doesn't count.
fn is_local(hub: &Handle, parts: &Parts) -> bool {
    let options = hub.options();
    let is_relayed = ["forwarded", "x-forwarded-for", "via"].iter().any(|name| parts.headers.contains_key(*name));
    let comes_from_here =
        parts.extensions.get().is_none_or(|PeerAddress(address)| address.ip().to_canonical().is_loopback());
    options.listen.ip().is_loopback() && options.public_url.is_none() && !is_relayed && comes_from_here
}
