//! The answer to a pull: a claim stays with the runtime only when its answer was written.

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
use http_body::Frame;

use crate::{control::Pulled, surface::reply};

/// One frame, then a pause in which the connection writes it, then the end. Whoever drops it earlier gives the claim back.
#[derive(Debug)]
struct Delivery {
    bytes: Option<Bytes>,
    pulled: Option<Pulled>,
    paused: bool,
}

pub(super) fn respond(pulled: Pulled) -> Response<Body> {
    if !pulled.is_claim() {
        return reply::json(StatusCode::OK, pulled.response());
    }
    let bytes = serde_json::to_vec(pulled.response()).expect("our own types serialise to JSON");
    let delivery = Delivery { bytes: Some(bytes.into()), pulled: Some(pulled), paused: false };
    let mut response = Response::new(Body::new(delivery));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

// === impl Delivery ===

impl http_body::Body for Delivery {
    type Data = Bytes;
    type Error = Infallible;

    // The length is not announced: a connection that knows it does not ask for the end.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(bytes) = self.bytes.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if !self.paused {
            self.paused = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(pulled) = self.pulled.take() {
            pulled.delivered();
        }
        Poll::Ready(None)
    }
}
