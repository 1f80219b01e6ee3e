//! `/api/v1/task-runs/{id}/events`: a page or a stream.

use attache_protocol::wire::event::EventPage;
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::HandlerResult;
use crate::{
    Error, Handle, Result,
    stream::respond,
    surface::{
        extract::{AuthenticatedCaller, PathSegment, QueryParams, accepts, header_text, id},
        reply,
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Query {
    /// Only events after this seq. For a stream, `Last-Event-ID` takes precedence.
    pub(super) after: Option<i64>,
    pub(super) limit: Option<usize>,
}

operations!(read);

/// Read a run's events: a page as JSON, or a live stream with `Accept: text/event-stream`
///
/// Each message of the stream has the event's seq as `id`, its type as `event` and the complete event as `data`. The
/// stream ends after the terminal event. Events below the retention floor are replaced by one `snapshot.repaired`.
#[utoipa::path(get, path = "/api/v1/task-runs/{run}/events", tag = "runs",
    params(("run" = String, Path), Query, ("Last-Event-ID" = Option<i64>, Header)),
    responses((status = 200, content((EventPage = "application/json"), (String = "text/event-stream")))))]
async fn read(
    State(hub): State<Handle>,
    AuthenticatedCaller(by): AuthenticatedCaller,
    PathSegment(run): PathSegment,
    QueryParams(query): QueryParams<Query>,
    headers: HeaderMap,
) -> HandlerResult {
    let run = id(&run, "run")?;
    if accepts(&headers, "text/event-stream") {
        let after = last_event_id(&headers)?.or(query.after);
        return Ok(respond(&hub, hub.follow_run(&by, run, after).await?));
    }
    Ok(reply::json(StatusCode::OK, &hub.run_events(&by, run, query.after, query.limit).await?))
}

pub(in crate::surface) fn last_event_id(headers: &HeaderMap) -> Result<Option<i64>> {
    match header_text(headers, "last-event-id")? {
        None => Ok(None),
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|_| Error::invalid("Last-Event-ID", "must be a seq of this stream"))
        }
    }
}
