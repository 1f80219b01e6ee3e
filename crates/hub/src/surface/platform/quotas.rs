//! `/api/v1/quotas`: daily limits.

use attache_protocol::wire::usage::{Quota, QuotaList, SetQuotaRequest};
use axum::{
    body::Body,
    extract::State,
    http::{Response, StatusCode},
};

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, JsonBody},
        reply,
    },
};

operations!(list, set);

/// List quotas with today's usage
#[utoipa::path(get, path = "/api/v1/quotas", tag = "quotas", responses((status = 200, body = QuotaList)))]
async fn list(State(hub): State<Handle>, AuthenticatedCaller(by): AuthenticatedCaller) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.quotas(&by).await?))
}

/// Set the quota of a user, an agent, a user with an agent, or the entire hub
///
/// An absent limit means unlimited. Without any limits, the quota is removed.
#[utoipa::path(put, path = "/api/v1/quotas", tag = "quotas", request_body = SetQuotaRequest,
    responses((status = 200, body = Quota), (status = 204, description = "The quota was removed")))]
async fn set(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    JsonBody(request): JsonBody<SetQuotaRequest>,
) -> HandlerResult {
    Ok(match hub.set_quota(&by, request).await? {
        Some(quota) => reply::json(StatusCode::OK, &quota),
        None => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
    })
}
