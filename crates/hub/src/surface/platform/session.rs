//! `/api/v1/sessions`.

use attache_protocol::wire::session::{ConsoleSession, ConsoleSessionList};
use axum::{extract::State, http::StatusCode};

use super::{HandlerResult, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, PathSegment, QueryParams, id},
        reply,
    },
};

operations!(list, end);

/// List console sessions, newest first
#[utoipa::path(get, path = "/api/v1/sessions", tag = "keys", params(PageParams),
    responses((status = 200, body = ConsoleSessionList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(page): QueryParams<PageParams>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.sessions(&by, page.page()).await?))
}

/// End a console session and all sessions opened from it
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", tag = "keys", params(("session" = String, Path)),
    responses((status = 200, body = ConsoleSession)))]
async fn end(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(session): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.end_session(&by, id(&session, "session")?).await?))
}
