//! `/api/v1/names`.

use attache_protocol::wire::names::NameList;
use axum::{extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Handle,
    surface::{
        extract::{AuthenticatedCaller, QueryParams},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// Ids or actors (`rtm_…`, `agt_…`, `usr_…`, `key:key_…`), comma-separated, at most 200.
    #[serde(default)]
    ids: String,
}

operations!(read);

/// Look up display names by id
#[utoipa::path(get, path = "/api/v1/names", tag = "users", params(Query), responses((status = 200, body = NameList)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let ids: Vec<String> = query.ids.split(',').map(str::trim).filter(|id| !id.is_empty()).map(str::to_owned).collect();
    Ok(reply::json(StatusCode::OK, &hub.names(&by, &ids).await?))
}
