//! `/api/v1/agent-accounts/{agent}/host-sessions`.

use attache_protocol::wire::host_session::HostSessionList;
use axum::{extract::State, http::StatusCode};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, PathSegment},
        reply,
    },
};

operations!(list);

/// List the sessions that an agent's host keeps for its working folder, newest first
///
/// Only for the agent's owner in person, who can continue one: `host_session` of a new conversation.
#[utoipa::path(get, path = "/api/v1/agent-accounts/{agent}/host-sessions", tag = "agents",
    params(("agent" = String, Path)), responses((status = 200, body = HostSessionList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(agent): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.host_sessions(&by, &agent).await?))
}
