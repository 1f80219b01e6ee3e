//! `/api/v1/sessions`.

use attache_protocol::wire::session::{Session, SessionList};
use axum::{extract::State, http::StatusCode};

use super::{Answer, PageParams};
use crate::{
    Handle,
    surface::{
        extract::{Caller, Params, Segment, id},
        reply,
    },
};

/// List console sessions, newest first
#[utoipa::path(get, path = "/api/v1/sessions", tag = "keys", params(PageParams),
    responses((status = 200, body = SessionList)))]
pub(super) async fn list(State(hub): State<Handle>, Caller(by): Caller, Params(page): Params<PageParams>) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.sessions(&by, page.page()).await?))
}

/// End a console session, and those that it opened
#[utoipa::path(delete, path = "/api/v1/sessions/{session}", tag = "keys", params(("session" = String, Path)),
    responses((status = 200, body = Session)))]
pub(super) async fn end(State(hub): State<Handle>, Caller(by): Caller, Segment(session): Segment) -> Answer {
    Ok(reply::json(StatusCode::OK, &hub.end_session(&by, id(&session, "session")?).await?))
}
