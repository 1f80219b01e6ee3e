//! `/api/v1/audit`: the tenant's log as a page or a live feed.

use attache_protocol::wire::audit::AuditPage;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};

use super::{
    HandlerResult,
    event::{Query, last_event_id},
};
use crate::{
    Handle,
    stream::respond,
    surface::{
        extract::{AuthenticatedCaller, QueryParams, accepts},
        reply,
    },
};

operations!(read);

/// Read the tenant's log: a page as JSON, or a live feed with `Accept: text/event-stream`
///
/// Rows are hash-chained. `floor` and `floor_hash` say where the chain starts. A feed without `after` starts at the
/// newest row.
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit",
    params(Query, ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((AuditPage = "application/json"), (String = "text/event-stream")))))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
    headers: HeaderMap,
) -> HandlerResult {
    if accepts(&headers, "text/event-stream") {
        let after = last_event_id(&headers)?.or(query.after);
        return Ok(respond(&hub, hub.follow_audit(&by, after).await?));
    }
    Ok(reply::json(StatusCode::OK, &hub.audit(&by, query.after, query.limit).await?))
}
