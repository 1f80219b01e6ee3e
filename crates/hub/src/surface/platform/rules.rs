//! `/api/v1/permission-rules`: what agents with keys of their own may reach.

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

/// The text of the rules and of its escapes; the reader refuses what is longer than a mebibyte itself.
const LIMIT: usize = 4 << 20;

/// Read the rules in force
#[utoipa::path(get, path = "/api/v1/permission-rules", tag = "rules", responses((status = 200, body = AccessRules)))]
pub(super) async fn read(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.access_rules(&by).await?))
}

/// Replace the rules, as a whole
///
/// With `version`, only if nobody changed them since. A text that is wrong is refused with line and column, and changes
/// nothing. If the hub was started with a file, the file is replaced too.
#[utoipa::path(put, path = "/api/v1/permission-rules", tag = "rules", request_body = SetAccessRules,
    responses((status = 200, body = AccessRules)))]
pub(super) async fn set(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<SetAccessRules, LIMIT>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.set_access_rules(&by, request).await?))
}

/// Ask what the rules in force say about an agent and a thing, and why
#[utoipa::path(post, path = "/api/v1/permission-rules/check", tag = "rules", request_body = CheckAccess,
    responses((status = 200, body = AccessDecision)))]
pub(super) async fn check(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<CheckAccess>,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.check_access(&by, request).await?))
}
