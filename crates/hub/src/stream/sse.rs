//! Server-sent events: `id:` is the seq, `event:` the type, with keep-alive comments while nothing happens.

use std::{convert::Infallible, future::Future};

use attache_protocol::wire::event::{Event, SeqRange};
use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use bytes::Bytes;
use futures_util::stream;
use serde::Serialize;

use crate::{
    Handle,
    stream::{ChannelFollow, RunFollow, TenantFollow},
};

/// In the extensions of a response: it is a stream that holds a slot of its caller, so its reader may pause. Only the code
/// that makes the stream sets it; a media type says nothing.
#[derive(Debug, Clone, Copy)]
pub struct OpenStream;

/// A source that can be followed from a cursor.
pub trait SseSource: Send + 'static {
    /// The next event in wire format. `None` at the end.
    fn next_frame(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// The data of `stream.gap`.
#[derive(Serialize)]
struct StreamGapData {
    missing: SeqRange,
}

/// A stream that is counted while it is open.
struct OpenSseStream<F> {
    hub: Handle,
    followed: F,
    begun: bool,
}

/// A response that streams the source until its end. The source holds a slot of the caller.
pub fn respond(hub: &Handle, followed: impl SseSource) -> Response<Body> {
    hub.metrics().streams.add(1);
    let open = OpenSseStream { hub: hub.clone(), followed, begun: false };
    let frames = stream::unfold(open, async |mut open| {
        let frame = open.next_frame().await?;
        Some((Ok::<_, Infallible>(frame), open))
    });
    let mut response = events(Body::from_stream(frames));
    response.extensions_mut().insert(OpenStream);
    response
}

/// Server-sent events, complete or not.
pub(crate) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Buffering proxies would delay a live stream.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// One event. Every line of the data gets its own `data:`, because relayed JSON may contain newlines between tokens.
pub(super) fn frame(seq: i64, kind: &str, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + kind.len() + 48);
    text.push_str("id: ");
    text.push_str(&seq.to_string());
    text.push_str("\nevent: ");
    text.push_str(kind);
    for line in data.split(['\n', '\r']) {
        text.push_str("\ndata: ");
        text.push_str(line);
    }
    text.push_str("\n\n");
    Bytes::from(text)
}

fn event_frame(event: &Event) -> Bytes {
    frame(event.seq, &event.kind, &serde_json::to_string(event).expect("our own types serialise to JSON"))
}

// === impl OpenSseStream ===

impl<F: SseSource> OpenSseStream<F> {
    async fn next_frame(&mut self) -> Option<Bytes> {
        if !self.begun {
            // Tells the client right away that the stream is open, even if nothing happens for a while.
            self.begun = true;
            return Some(Bytes::from_static(b": open\n\n"));
        }
        let keep_alive = self.hub.options().keep_alive;
        match tokio::time::timeout(keep_alive, self.followed.next_frame()).await {
            Ok(frame) => frame,
            Err(_) => Some(Bytes::from_static(b": alive\n\n")),
        }
    }
}

impl<F> Drop for OpenSseStream<F> {
    fn drop(&mut self) {
        self.hub.metrics().streams.take(1);
    }
}

impl SseSource for RunFollow {
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.next().await.map(|event| event_frame(&event))
    }
}

impl SseSource for ChannelFollow {
    async fn next_frame(&mut self) -> Option<Bytes> {
        self.next().await.map(|event| event_frame(&event))
    }
}

impl SseSource for TenantFollow {
    async fn next_frame(&mut self) -> Option<Bytes> {
        let row = self.next().await?;
        if let Some(missing) = self.take_gap() {
            self.hold(row);
            let data = serde_json::to_string(&StreamGapData { missing }).expect("our own types serialise to JSON");
            return Some(frame(missing.to, "stream.gap", &data));
        }
        Some(frame(row.seq, &row.kind, &serde_json::to_string(&row).expect("our own types serialise to JSON")))
    }
}
