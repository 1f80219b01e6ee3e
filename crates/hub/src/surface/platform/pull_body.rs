//! The response to a pull: the runtime keeps the claim only if the connection accepted the response.

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

/// A single frame of known length. If the connection is gone, it is dropped, which releases the claim. If it is lost
/// after that, the runtime's next heartbeat does not list the run, and the claim is revoked after its grace period.
#[derive(Debug)]
struct PullBody {
    bytes: Bytes,
    /// Set until the frame is taken.
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
