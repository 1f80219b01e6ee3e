//! Updates as server-sent events.

use std::{convert::Infallible, time::Duration};

use attache_a2a_wire::StreamResponse;
use attache_hub::stream::OpenStream;
use attache_protocol::Json;
use axum::{
    Extension,
    body::Body,
    http::{Response, StatusCode},
    response::{
        IntoResponse as _,
        sse::{Event, KeepAlive, Sse},
    },
};

use crate::operation::TaskUpdates;

const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// `write` renders each update.
pub(super) fn respond(updates: TaskUpdates, write: impl Fn(StreamResponse) -> Json + Send + 'static) -> Response<Body> {
    let events = futures_util::stream::unfold((updates, write), |(mut updates, write)| async move {
        let update = updates.next().await?;
        let event = Event::default().data(write(update).get());
        Some((Ok::<_, Infallible>(event), (updates, write)))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    (Extension(OpenStream), stream).into_response()
}

/// A stream that contains only an error.
pub(super) fn refuse(refusal: Json, status: u16) -> Response<Body> {
    let event = Ok::<_, Infallible>(Event::default().data(refusal.get()));
    let mut response = Sse::new(futures_util::stream::iter([event])).into_response();
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    response
}
