//! The bodies of requests as they come through the port, whichever surface reads them: how much, for how long, and how much
//! memory all strangers together may take with theirs.

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

/// Of whoever has not shown who they are, unless the surface takes more from everybody.
pub(crate) const STRANGER_LIMIT: usize = 64 << 10;
/// So much of a stranger's body is not counted: whoever fills the budget keeps nobody from signing in or pairing.
const UNCOUNTED: usize = 8 << 10;
/// How much of a refused body is read and thrown away, so that its sender gets to see the answer.
const DISCARD: usize = 16 << 20;

/// The memory that bodies of strangers may take, all together.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: usize,
    taken: AtomicUsize,
}

/// What holds for the body of one request. What it took of the budget is given back with the last copy.
#[derive(Debug, Clone)]
pub(crate) struct Intake(Arc<Terms>);

#[derive(Debug)]
struct Terms {
    /// `None` for whoever is known: they may take as much as the surface reads.
    stranger: Option<Stranger>,
    timeout: Duration,
    /// The time counts anew with every piece.
    is_upload: AtomicBool,
    /// Not read to its end.
    is_unread: AtomicBool,
    refusal: OnceLock<Error>,
    /// The surface has put the refusal into words of its own.
    is_told: AtomicBool,
}

#[derive(Debug)]
struct Stranger {
    limit: AtomicUsize,
    taken: AtomicUsize,
    budget: Arc<Budget>,
}

/// A body on its way in.
pub(crate) struct Arriving {
    body: Incoming,
    intake: Intake,
    received: usize,
    until: Pin<Box<Sleep>>,
    /// It is too much, and what still comes is thrown away.
    excess: Option<Error>,
}

/// Why a body ends before its end.
#[derive(Debug)]
pub(crate) struct Refused(Intake);

/// Takes bodies up to this size also from those who show no credential. For a surface that serves them, before it reads.
pub fn accept_body(extensions: &Extensions, limit: usize) {
    if let Some(stranger) = extensions.get::<Intake>().and_then(|intake| intake.0.stranger.as_ref()) {
        stranger.limit.fetch_max(limit, Ordering::Relaxed);
    }
}

/// Takes a body for as long as it goes on coming.
pub(crate) fn accept_upload(extensions: &Extensions) {
    if let Some(Intake(terms)) = extensions.get() {
        terms.is_upload.store(true, Ordering::Relaxed);
    }
}

/// What is wrong with a body that could not be read.
pub(crate) fn broken(error: axum::Error) -> Error {
    match error.into_inner().downcast::<Refused>() {
        Ok(refused) => refused.tell(),
        Err(_) => Error::new(Code::InvalidRequest, "The body broke off before its end."),
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
    /// With a budget for a stranger, without one for whoever is known.
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

    /// The refusal that the surface did not see, or took for something else, as the answer to the request.
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

/// In which words a request wants its answer.
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

/// gRPC says its status in headers of its own.
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
    /// What is wrong with the part that has arrived.
    fn check(&self) -> Result<(), Error> {
        let Some(stranger) = &self.intake.0.stranger else { return Ok(()) };
        let limit = stranger.limit.load(Ordering::Relaxed);
        if self.received > limit {
            let message = format!("Without a credential a body may have at most {limit} bytes.");
            return Err(Error::new(Code::TooLarge, message).hint("Send a credential, or less."));
        }
        let taken = stranger.taken.load(Ordering::Relaxed);
        let more = self.received.saturating_sub(UNCOUNTED).saturating_sub(taken);
        if more > 0 && !stranger.budget.take(more) {
            let message = "The hub is busy reading requests of callers without a credential.";
            let hint = "Try again in a moment, send less, or send a credential.";
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
                // Its sender may read the answer only once everything is sent.
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
        known.unwrap_or_else(|| Error::new(Code::InvalidRequest, "The body broke off before its end."))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0.refusal.get() {
            Some(error) => error.message.fmt(f),
            None => f.write_str("The body broke off before its end."),
        }
    }
}

impl StdError for Refused {}
