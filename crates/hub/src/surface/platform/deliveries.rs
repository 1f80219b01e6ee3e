//! `/api/v1/deliveries`: webhook deliveries and their outcomes.

use attache_protocol::{
    RunId,
    wire::delivery::{Delivery, DeliveryList, DeliverySecret, DeliveryState},
};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Handle,
    control::{DeliveryQuery, PageRequest},
    surface::{
        extract::{AuthenticatedCaller, PathSegment, QueryParams, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    state: Option<DeliveryState>,
    task_run_id: Option<RunId>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SecretQuery {
    /// Return the secret of this agent's approval webhook instead of the caller's own.
    agent_id: Option<String>,
}

operations!(list, read, resend, secret);

/// List deliveries, newest first
#[utoipa::path(get, path = "/api/v1/deliveries", tag = "deliveries", params(Query),
    responses((status = 200, body = DeliveryList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let query = DeliveryQuery {
        state: query.state,
        run: query.task_run_id,
        page: PageRequest { limit: query.limit, cursor: query.cursor },
    };
    Ok(reply::json(StatusCode::OK, &hub.deliveries(&by, query).await?))
}

/// Read a delivery
#[utoipa::path(get, path = "/api/v1/deliveries/{delivery}", tag = "deliveries", params(("delivery" = String, Path)),
    responses((status = 200, body = Delivery)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delivery): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.delivery(&by, id(&delivery, "delivery")?).await?))
}

/// Send a delivery again now, with the same id
#[utoipa::path(post, path = "/api/v1/deliveries/{delivery}/resend", tag = "deliveries",
    params(("delivery" = String, Path)), responses((status = 200, body = Delivery)))]
async fn resend(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(delivery): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.resend_delivery(&by, id(&delivery, "delivery")?).await?))
}

/// Read the secret that signs the caller's deliveries
///
/// docs/webhooks.md describes the bodies and how to verify signatures.
#[utoipa::path(get, path = "/api/v1/deliveries/secret", tag = "deliveries", params(SecretQuery),
    responses((status = 200, body = DeliverySecret)))]
async fn secret(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(whose): QueryParams<SecretQuery>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.delivery_secret(&by, whose.agent_id.as_deref()).await?))
}
