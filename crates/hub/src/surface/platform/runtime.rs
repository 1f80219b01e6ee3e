//! `/api/v1/agent-runtimes`, for people.

use attache_protocol::wire::runtime::{Runtime, RuntimeList};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Handle,
    control::PageRequest,
    surface::{
        extract::{AuthenticatedCaller, PathSegment, QueryParams, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// Only devices of this agent, by id or name.
    agent_id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

operations!(list, read, revoke);

/// List runtimes, newest first
#[utoipa::path(get, path = "/api/v1/agent-runtimes", tag = "runtimes", params(Query),
    responses((status = 200, body = RuntimeList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    Ok(reply::json(StatusCode::OK, &hub.runtimes(&by, query.agent_id.as_deref(), page).await?))
}

/// Read a runtime
#[utoipa::path(get, path = "/api/v1/agent-runtimes/{runtime}", tag = "runtimes", params(("runtime" = String, Path)),
    responses((status = 200, body = Runtime)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(runtime): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.runtime(&by, id(&runtime, "runtime")?).await?))
}

/// Revoke a runtime: its token stops working and its claims are lost
#[utoipa::path(delete, path = "/api/v1/agent-runtimes/{runtime}", tag = "runtimes",
    params(("runtime" = String, Path)), responses((status = 200, body = Runtime)))]
async fn revoke(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(runtime): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.revoke_runtime(&by, id(&runtime, "runtime")?).await?))
}
