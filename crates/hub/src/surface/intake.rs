//! Limits request bodies on the port for all surfaces: size, time, and the memory that all unauthenticated requests may
//! use together.

use std::{
    error::Error as StdError,
    fmt,
    future::Future as _,
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use attache_protocol::Code;
use axum::{
    body::{Body, Bytes},
    http::{Extensions, HeaderMap, HeaderValue, Response, header},
    response::IntoResponse as _,
};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::Error;

/// For unauthenticated requests, unless the surface allows more.
pub(crate) const STRANGER_LIMIT: usize = 64 << 10;
/// This much of an unauthenticated body is not counted, so that a full budget doesn't block sign-in or pairing.
const UNCOUNTED: usize = 8 << 10;
/// How much of a rejected body is read and discarded, so that the sender can read the response.
const DISCARD: usize = 16 << 20;

/// The memory that all unauthenticated bodies may use together.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    taken: AtomicUsize,
}

/// The limits for one request's body. Its share of the budget is returned when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Intake(Arc<Terms>);

#[derive(Debug)]
struct Terms {
    /// `None` for authenticated callers: only the surface limits them.
    stranger: Option<Stranger>,
    timeout: Duration,
    /// The timeout restarts with every chunk.
    is_upload: AtomicBool,
    /// Not read to the end.
    is_unread: AtomicBool,
    refusal: OnceLock<Error>,
    /// The surface has already reported the refusal itself.
    is_told: AtomicBool,
}

#[derive(Debug)]
struct Stranger {
    limit: AtomicUsize,
    taken: AtomicUsize,
    budget: Arc<Budget>,
}

/// An incoming body.
pub(crate) struct Arriving {
    body: Incoming,
    intake: Intake,
    received: usize,
    until: Pin<Box<Sleep>>,
    /// The limit is exceeded, and the rest is discarded.
    excess: Option<Error>,
}

/// Why a body ends early.
#[derive(Debug)]
pub(crate) struct Refused(Intake);

/// Accepts bodies up to this size even without a credential. Surfaces that serve anonymous callers call it before
/// reading.
pub fn accept_body(extensions: &Extensions, limit: usize) {
    if let Some(stranger) = extensions.get::<Intake>().and_then(|intake| intake.0.stranger.as_ref()) {
        stranger.limit.fetch_max(limit, Ordering::Relaxed);
    }
}

/// Accepts a body for as long as data keeps arriving.
pub(crate) fn accept_upload(extensions: &Extensions) {
    if let Some(Intake(terms)) = extensions.get() {
        terms.is_upload.store(true, Ordering::Relaxed);
    }
}

/// Converts an error from reading a body.
pub(crate) fn broken(error: axum::Error) -> Error {
    match error.into_inner().downcast::<Refused>() {
        Ok(refused) => refused.tell(),
        Err(_) => Error::new(Code::InvalidRequest, "The body was cut off."),
    }
}

// === impl Budget ===

impl Budget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, taken: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// === impl Intake ===

impl Intake {
    /// With a budget for unauthenticated callers, without one for authenticated ones.
    pub(crate) fn new(timeout: Duration, budget: Option<Arc<Budget>>) -> Self {
        let (limit, taken) = (AtomicUsize::new(STRANGER_LIMIT), AtomicUsize::new(0));
        Self(Arc::new(Terms {
            stranger: budget.map(|budget| Stranger { limit, taken, budget }),
            timeout,
            is_upload: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
            refusal: OnceLock::new(),
            is_told: AtomicBool::new(false),
        }))
    }

    pub(crate) fn body(&self, body: Incoming) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        self.0.is_unread.store(true, Ordering::Relaxed);
        let until = Box::pin(sleep_until(Instant::now() + self.0.timeout));
        Body::new(Arriving { body, intake: self.clone(), received: 0, until, excess: None })
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.0.is_unread.load(Ordering::Relaxed)
    }

    /// A refusal that the surface did not see or misread, as the response to the request.
    pub(crate) fn untold(&self, request: Called) -> Option<Response<Body>> {
        let error = self.0.refusal.get().filter(|_| !self.0.is_told.load(Ordering::Relaxed))?;
        Some(if request.is_grpc { grpc(error) } else { error.clone().into_response() })
    }

    fn refuse(&self, error: Error) -> Box<dyn StdError + Send + Sync> {
        let _ = self.0.refusal.set(error);
        Box::new(Refused(self.clone()))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.budget.give_back(*self.taken.get_mut());
    }
}

/// The format in which the request expects its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Called {
    is_grpc: bool,
}

// === impl Called ===

impl Called {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        Self { is_grpc: kind.starts_with("application/grpc") }
    }
}

/// gRPC sends its status in its own headers.
fn grpc(error: &Error) -> Response<Body> {
    let status = match error.code.http_status() {
        413 | 429 => "8",
        _ => "4",
    };
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(status));
    let message = utf8_percent_encode(&error.message, NON_ALPHANUMERIC).to_string();
    if let Ok(message) = HeaderValue::from_str(&message) {
        headers.insert("grpc-message", message);
    }
    response
}

// === impl Arriving ===

impl Arriving {
    /// Checks what has arrived so far.
    fn check(&self) -> Result<(), Error> {
        let Some(stranger) = &self.intake.0.stranger else { return Ok(()) };
        let limit = stranger.limit.load(Ordering::Relaxed);
        if self.received > limit {
            let message = format!("Without a credential, a body can have at most {limit} bytes.");
            return Err(Error::new(Code::TooLarge, message).hint("Send a credential, or less data."));
        }
        let taken = stranger.taken.load(Ordering::Relaxed);
        let more = self.received.saturating_sub(UNCOUNTED).saturating_sub(taken);
        if more > 0 && !stranger.budget.take(more) {
            let message = "The hub is busy with requests from callers without a credential.";
            let hint = "Try again in a moment, send less data, or send a credential.";
            return Err(Error::new(Code::TooManyRequests, message).hint(hint));
        }
        stranger.taken.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn late(&self) -> Error {
        let message = format!("The body did not arrive within {} seconds.", self.intake.0.timeout.as_secs_f32());
        Error::new(Code::RequestTimeout, message)
    }
}

impl hyper::body::Body for Arriving {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if this.intake.0.refusal.get().is_some() {
            return Poll::Ready(None);
        }
        loop {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(end) => {
                    this.intake.0.is_unread.store(false, Ordering::Relaxed);
                    return Poll::Ready(match (this.excess.take(), end) {
                        (Some(refusal), _) => Some(Err(this.intake.refuse(refusal))),
                        (None, Some(Err(error))) => Some(Err(error.into())),
                        (None, _) => None,
                    });
                }
                Poll::Pending => {
                    std::task::ready!(this.until.as_mut().poll(context));
                    let late = this.excess.take().unwrap_or_else(|| this.late());
                    return Poll::Ready(Some(Err(this.intake.refuse(late))));
                }
            };
            this.received += frame.data_ref().map_or(0, Bytes::len);
            if this.body.is_end_stream() {
                this.intake.0.is_unread.store(false, Ordering::Relaxed);
            }
            if this.intake.0.is_upload.load(Ordering::Relaxed) {
                this.until.as_mut().reset(Instant::now() + this.intake.0.timeout);
            }
            if this.excess.is_some() && this.received <= DISCARD {
                continue;
            }
            match this.check() {
                Ok(()) => return Poll::Ready(Some(Ok(frame))),
                // The sender may read the response only after sending everything.
                Err(error) if this.received <= DISCARD => {
                    this.excess.get_or_insert(error);
                }
                Err(error) => return Poll::Ready(Some(Err(this.intake.refuse(error)))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.excess.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

// === impl Refused ===

impl Refused {
    fn tell(&self) -> Error {
        self.0.0.is_told.store(true, Ordering::Relaxed);
        let known = self.0.0.refusal.get().cloned();
        known.unwrap_or_else(|| Error::new(Code::InvalidRequest, "The body was cut off."))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0.refusal.get() {
            Some(error) => error.message.fmt(f),
            None => f.write_str("The body was cut off."),
        }
    }
}

impl StdError for Refused {}
