//! `/api/v1/permission-rules`: what agents with their own keys may reach.

use attache_protocol::wire::access::{AccessDecision, AccessRules, CheckAccess, SetAccessRules};
use axum::{extract::State, http::StatusCode};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody},
        reply,
    },
};

/// Allows for the rules text with JSON escapes. The parser itself rejects more than one mebibyte.
const LIMIT: usize = 4 << 20;

operations!(read, set, check);

/// Read the current access rules
#[utoipa::path(get, path = "/api/v1/permission-rules", tag = "rules", responses((status = 200, body = AccessRules)))]
async fn read(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.access_rules(&by).await?))
}

/// Replace all access rules
///
/// With `version`, fails if the rules have changed since. Invalid text is rejected with line and column, and nothing
/// changes. If the hub was started with a rules file, the file is replaced too.
#[utoipa::path(put, path = "/api/v1/permission-rules", tag = "rules", request_body = SetAccessRules,
    responses((status = 200, body = AccessRules)))]
async fn set(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<SetAccessRules, LIMIT>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.set_access_rules(&by, request).await?))
}

/// Check what the current rules decide about an agent and an object, and why
#[utoipa::path(post, path = "/api/v1/permission-rules/check", tag = "rules", request_body = CheckAccess,
    responses((status = 200, body = AccessDecision)))]
async fn check(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CheckAccess>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.check_access(&by, request).await?))
}
