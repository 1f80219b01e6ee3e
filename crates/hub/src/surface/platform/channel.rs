//! `/api/v1/channels`: the durable channels of peers, and their events.

use attache_protocol::wire::channel::{Channel, ChannelEventPage, ChannelList, ConnectionState};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    HandlerResult,
    event::{Query as EventQuery, last_event_id},
};
use crate::{
    Handle,
    control::{ChannelQuery, PageRequest},
    stream::respond,
    surface::{
        extract::{AuthenticatedCaller, PathSegment, QueryParams, accepts, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    status: Option<ConnectionState>,
    /// Only channels that work for this agent, by id or name.
    agent_id: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

operations!(list, read, events);

/// List channels, newest first
#[utoipa::path(get, path = "/api/v1/channels", tag = "channels", params(Query),
    responses((status = 200, body = ChannelList)))]
async fn list(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    QueryParams(query): QueryParams<Query>,
) -> HandlerResult {
    let page = PageRequest { limit: query.limit, cursor: query.cursor };
    let connected = query.status.map(|status| status == ConnectionState::Connected);
    let query = ChannelQuery { connected, agent: query.agent_id };
    Ok(reply::json(StatusCode::OK, &hub.channels(&by, query, page).await?))
}

/// Read a channel
#[utoipa::path(get, path = "/api/v1/channels/{channel}", tag = "channels", params(("channel" = String, Path)),
    responses((status = 200, body = Channel)))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(channel): PathSegment,
) -> HandlerResult {
    Ok(reply::json(StatusCode::OK, &hub.channel(&by, id(&channel, "channel")?).await?))
}

/// Read a channel's events: a page as JSON, or a live stream with `Accept: text/event-stream`
///
/// The stream stays open while the channel is disconnected, because its peer may come back.
#[utoipa::path(get, path = "/api/v1/channels/{channel}/events", tag = "channels",
    params(("channel" = String, Path), EventQuery, ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((ChannelEventPage = "application/json"), (String = "text/event-stream")))))]
async fn events(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(channel): PathSegment,
    QueryParams(query): QueryParams<EventQuery>,
    headers: HeaderMap,
) -> HandlerResult {
    let channel = id(&channel, "channel")?;
    if accepts(&headers, "text/event-stream") {
        let after = last_event_id(&headers)?.or(query.after);
        return Ok(respond(&hub, hub.follow_channel(&by, channel, after).await?));
    }
    Ok(reply::json(StatusCode::OK, &hub.channel_events(&by, channel, query.after, query.limit).await?))
}
