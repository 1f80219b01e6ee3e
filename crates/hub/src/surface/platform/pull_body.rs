//! The answer to a pull: a claim stays with the runtime only when the connection took its answer.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{control::PullAnswer, surface::reply};

/// One frame of known length. A connection that is gone drops it untaken, which gives the claim back; what is lost after
/// it was taken, the runtime's next heartbeat does not name, and the claim is lost after its grace.
#[derive(Debug)]
struct PullBody {
    bytes: Bytes,
    /// Until the frame is taken.
    pulled: Option<PullAnswer>,
}

pub(super) fn respond(pulled: PullAnswer) -> Response<Body> {
    if !pulled.is_claim() {
        return reply::json(StatusCode::OK, pulled.response());
    }
    let bytes = serde_json::to_vec(pulled.response()).expect("our own types serialise to JSON");
    let mut response = Response::new(Body::new(PullBody { bytes: bytes.into(), pulled: Some(pulled) }));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

// === impl PullBody ===

impl http_body::Body for PullBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(pulled) = self.pulled.take() else { return Poll::Ready(None) };
        pulled.delivered();
        Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.pulled.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}
