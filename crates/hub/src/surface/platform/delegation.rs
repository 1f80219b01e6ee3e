//! `/api/v1/delegations`: what daemons say of the folders that they lend, and people's wish that one ends.

use std::time::Duration;

use attache_protocol::wire::delegation::{Cancellation, Projection, Published, PublishedList};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Answer, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{Caller, Input, Params, Segment, id},
        reply,
    },
};

const WHAT: &str = "delegation";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wait {
    /// How long to wait for somebody to ask for its end, at most a minute.
    wait_ms: Option<u64>,
}

/// List delegations, newest first
#[utoipa::path(get, path = "/api/v1/delegations", tag = "delegations", params(PageParams),
    responses((status = 200, body = PublishedList)))]
pub(super) async fn list(State(hub): State<Handle>, Caller(by): Caller, Params(page): Params<PageParams>) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.delegations(&by, page.page()).await?))
}

/// Publish how a delegation of your own is
///
/// Its truth stays with the daemon that lends the folder. Neither a path of that machine nor a credential belongs here.
#[utoipa::path(put, path = "/api/v1/delegations/{delegation}", tag = "delegations",
    params(("delegation" = String, Path)), request_body = Projection, responses((status = 200, body = Published)))]
pub(super) async fn publish(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(delegation): Segment,
    Input(projection): Input<Projection>,
) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.publish_delegation(&by, id(&delegation, WHAT)?, projection).await?))
}

/// Read a delegation
#[utoipa::path(get, path = "/api/v1/delegations/{delegation}", tag = "delegations",
    params(("delegation" = String, Path)), responses((status = 200, body = Published)))]
pub(super) async fn read(State(hub): State<Handle>, Caller(by): Caller, Segment(delegation): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.delegation(&by, id(&delegation, WHAT)?).await?))
}

/// Ask the daemon that lends the folder to end a delegation
#[utoipa::path(post, path = "/api/v1/delegations/{delegation}/cancel", tag = "delegations",
    params(("delegation" = String, Path)), responses((status = 200, body = Published)))]
pub(super) async fn cancel(State(hub): State<Handle>, Caller(by): Caller, Segment(delegation): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.cancel_delegation(&by, id(&delegation, WHAT)?).await?))
}

/// Wait until somebody asks for the end of a delegation of your own
#[utoipa::path(get, path = "/api/v1/delegations/{delegation}/cancellation", tag = "delegations",
    params(("delegation" = String, Path), Wait), responses((status = 200, body = Cancellation)))]
pub(super) async fn cancellation(
    State(hub): State<Handle>,
    Caller(by): Caller,
    Segment(delegation): Segment,
    Params(query): Params<Wait>,
) -> Answer {
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0));
    Ok(reply::json(StatusCode::OK, &hub.delegation_cancellation(&by, id(&delegation, WHAT)?, wait).await?))
}
