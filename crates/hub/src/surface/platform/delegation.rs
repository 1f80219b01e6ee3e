//! `/api/v1/delegations`: delegations published by daemons, and requests to end them.

use std::time::Duration;

use attache_protocol::wire::delegation::{
    DelegationCancellation, DelegationProjection, PublishedDelegation, PublishedDelegationList,
};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment, QueryParams, id},
        reply,
    },
};

const WHAT: &str = "delegation";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct CancellationQuery {
    /// How long to wait for a request to end it, at most a minute.
    wait_ms: Option<u64>,
}

operations!(list, publish, read, cancel, cancellation);

/// List delegations, newest first
#[utoipa::path(get, path = "/api/v1/delegations", tag = "delegations", params(PageParams),
    responses((status = 200, body = PublishedDelegationList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.delegations(&by, page.page()).await?))
}

/// Publish the state of one of your delegations
///
/// The daemon that delegates the folder remains the source of truth. Don't include local paths or credentials.
#[utoipa::path(put, path = "/api/v1/delegations/{delegation}", tag = "delegations",
    params(("delegation" = String, Path)), request_body = DelegationProjection, responses((status = 200, body = PublishedDelegation)))]
async fn publish(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delegation): PathSegment,
    JsonBody(projection): JsonBody<DelegationProjection>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.publish_delegation(&by, id(&delegation, WHAT)?, projection).await?))
}

/// Read a delegation
#[utoipa::path(get, path = "/api/v1/delegations/{delegation}", tag = "delegations",
    params(("delegation" = String, Path)), responses((status = 200, body = PublishedDelegation)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delegation): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.delegation(&by, id(&delegation, WHAT)?).await?))
}

/// Ask the daemon to end a delegation
#[utoipa::path(post, path = "/api/v1/delegations/{delegation}/cancel", tag = "delegations",
    params(("delegation" = String, Path)), responses((status = 200, body = PublishedDelegation)))]
async fn cancel(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delegation): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.cancel_delegation(&by, id(&delegation, WHAT)?).await?))
}

/// Wait for a request to end one of your delegations
#[utoipa::path(get, path = "/api/v1/delegations/{delegation}/cancellation", tag = "delegations",
    params(("delegation" = String, Path), CancellationQuery), responses((status = 200, body = DelegationCancellation)))]
async fn cancellation(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delegation): PathSegment,
    QueryParams(query): QueryParams<CancellationQuery>,
) -> HandlerResult {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.delegation_cancellation(&by, id(&delegation, WHAT)?, wait).await?))
}
