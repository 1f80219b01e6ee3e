//! `/api/v1/run-views`: the views of the list of runs that a person keeps.

use attache_protocol::wire::run_view::{RunView, RunViewFilter, RunViewList};
use axum::{extract::State, http::StatusCode, response::IntoResponse as _};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody, PathSegment},
        reply,
    },
};

operations!(list, set, remove);

/// List your own views of the list of runs, in the order in which they were made
#[utoipa::path(get, path = "/api/v1/run-views", tag = "runs", responses((status = 200, body = RunViewList)))]
async fn list(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.run_views(&by).await?))
}

/// Save a view under a name, or replace the one that has it
#[utoipa::path(put, path = "/api/v1/run-views/{name}", tag = "runs", params(("name" = String, Path)),
    request_body = RunViewFilter, responses((status = 200, body = RunView)))]
async fn set(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(name): PathSegment,
    JsonBody(filter): JsonBody<RunViewFilter>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.set_run_view(&by, &name, filter).await?))
}

/// Remove a view
#[utoipa::path(delete, path = "/api/v1/run-views/{name}", tag = "runs", params(("name" = String, Path)),
    responses((status = 204)))]
async fn remove(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(name): PathSegment,
) -> HandlerResult {
    hub.remove_view(&by, &name).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
