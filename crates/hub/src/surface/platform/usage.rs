//! `/api/v1/usage`: usage of runs.

use attache_protocol::wire::usage::{UsageRecordList, UsageReport};
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Handle,
    control::{PageRequest, RecordQuery, UsageQuery},
    surface::{
        extract::{AuthenticatedCaller, QueryParams},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DaysQuery {
    /// The first day, as 2026-11-15. Default: 30 days before the last.
    from: Option<String>,
    /// The last day. Default: today.
    to: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RecordsQuery {
    /// Only calls of this agent, by id or name.
    agent: Option<String>,
    /// Only calls made for this user, by id or name.
    user: Option<String>,
    /// Only calls made on this day, as 2026-11-15.
    day: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

operations!(read, records);

/// Read usage by day, user and agent
#[utoipa::path(get, path = "/api/v1/usage", tag = "usage", params(DaysQuery),
    responses((status = 200, body = UsageReport)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(days): QueryParams<DaysQuery>,
) -> HandlerResult {
    let query = UsageQuery { from: days.from, to: days.to };
    Ok(reply::json(StatusCode::OK, &hub.usage(&by, query).await?))
}

/// List the usage of each call, newest first
#[utoipa::path(get, path = "/api/v1/usage/records", tag = "usage", params(RecordsQuery),
    responses((status = 200, body = UsageRecordList)))]
async fn records(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(filter): QueryParams<RecordsQuery>,
) -> HandlerResult {
    let RecordsQuery { agent, user, day, limit, cursor } = filter;
    let query = RecordQuery { agent, user, day, page: PageRequest { limit, cursor } };
    Ok(reply::json(StatusCode::OK, &hub.usage_records(&by, query).await?))
}
