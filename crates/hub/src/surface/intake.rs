//! Limits what requests on the port take, for all surfaces: the size of bodies, time, and the memory that all
//! unauthenticated requests may use together, heads included.

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
    http::{Extensions, HeaderMap, HeaderName, HeaderValue, Request, Response, header},
    response::IntoResponse as _,
};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::Error;

/// For unauthenticated requests, unless the surface allows more.
pub(crate) const MAX_UNAUTHENTICATED_BODY: usize = 64 << 10;
/// For authenticated requests, unless the surface allows more. Most surfaces allow less; one that forgets to is safe, too.
/// What the largest of them accept is 4 MiB, which with its framing stays below this.
const MAX_BODY: usize = (4 << 20) + (64 << 10);
/// This much of what a connection's unauthenticated requests take is not counted, so that a full budget doesn't block
/// sign-in or pairing.
const UNCOUNTED: usize = 16 << 10;
/// How many unauthenticated requests of one connection are open at a time, until their responses are taken.
const MAX_OPEN: usize = 16;
/// What a request takes in memory while it is served, and what each of its headers does besides its text: over HTTP/2,
/// a header may arrive as a single byte.
const PER_REQUEST: usize = 2 << 10;
const PER_HEADER: usize = 160;
/// How much of a rejected body is read and discarded, so that the sender can read the response.
const DISCARD: usize = 16 << 20;

/// The memory that all unauthenticated requests may use together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes: usize,
    taken: AtomicUsize,
}

/// What the unauthenticated requests of one connection use.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    uncounted: MemoryBudget,
    shared: Arc<MemoryBudget>,
    open: AtomicUsize,
}

/// What one unauthenticated request uses. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    connection: Arc<ConnectionBudget>,
    uncounted: AtomicUsize,
    counted: AtomicUsize,
}

/// One unauthenticated request, until its response is taken.
#[derive(Debug)]
pub(crate) struct OpenRequest(Arc<ConnectionBudget>);

/// The limits for one request's body. Its share of the budget is returned when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Intake(Arc<IntakeState>);

#[derive(Debug)]
struct IntakeState {
    /// `None` for authenticated callers, whose bodies are not counted together.
    unauthenticated: Option<UnauthenticatedBody>,
    limit: AtomicUsize,
    timeout: Duration,
    /// An authenticated caller may send as much as it likes, and the timeout restarts with every chunk.
    is_upload: AtomicBool,
    /// Not read to the end.
    is_unread: AtomicBool,
    refusal: OnceLock<Error>,
    /// The surface has already reported the refusal itself.
    is_reported: AtomicBool,
}

#[derive(Debug)]
struct UnauthenticatedBody {
    /// How much of the body is in the share.
    counted: AtomicUsize,
    share: BudgetShare,
}

/// An incoming body.
pub(crate) struct IncomingBody {
    body: Incoming,
    intake: Intake,
    received: usize,
    until: Pin<Box<Sleep>>,
    /// The limit is exceeded, and the rest is discarded.
    excess: Option<Error>,
}

/// Why a body ends early.
#[derive(Debug)]
pub(crate) struct BodyError(Intake);

/// Accepts bodies up to this size, even without a credential. Surfaces that serve anonymous callers, or read more than
/// others, call it before reading.
pub fn accept_body(extensions: &Extensions, limit: usize) {
    if let Some(Intake(terms)) = extensions.get() {
        terms.limit.fetch_max(limit, Ordering::Relaxed);
    }
}

/// Counts what a body takes in memory besides its bytes, until the request is answered. `false` if that is more than one request
/// may take. Authenticated callers aren't counted.
pub fn take_memory(extensions: &Extensions, bytes: usize, limit: usize) -> Result<bool, Error> {
    match extensions.get::<Intake>().and_then(|intake| intake.0.unauthenticated.as_ref()) {
        Some(_) if bytes > limit => Ok(false),
        Some(unauthenticated) if !unauthenticated.share.take(bytes) => Err(busy()),
        Some(_) | None => Ok(true),
    }
}

/// Accepts a body of any size from an authenticated caller, for as long as data keeps arriving. What is done with it must
/// have a limit of its own.
pub fn accept_upload(extensions: &Extensions) {
    if let Some(Intake(terms)) = extensions.get() {
        terms.is_upload.store(true, Ordering::Relaxed);
    }
}

/// Converts an error from reading a body.
pub(crate) fn broken(error: axum::Error) -> Error {
    match error.into_inner().downcast::<BodyError>() {
        Ok(refused) => refused.tell(),
        Err(_) => Error::new(Code::InvalidRequest, "The body was cut off."),
    }
}

fn busy() -> Error {
    Error::new(Code::TooManyRequests, "The hub is busy with requests from callers without a credential.")
        .hint("Try again in a moment, send less data, or send a credential.")
}

// === impl MemoryBudget ===

impl MemoryBudget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self { bytes, taken: AtomicUsize::new(0) }
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| taken.checked_add(bytes).filter(|taken| *taken <= self.bytes);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// As much of it as there is.
    fn take_some(&self, bytes: usize) -> usize {
        let all = |taken: usize| Some(taken + bytes.min(self.bytes - taken));
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all).unwrap_or(self.bytes);
        bytes.min(self.bytes - before)
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// === impl ConnectionBudget ===

impl ConnectionBudget {
    pub(crate) const fn new(shared: Arc<MemoryBudget>) -> Self {
        Self { uncounted: MemoryBudget::new(UNCOUNTED), shared, open: AtomicUsize::new(0) }
    }

    pub(crate) fn share(self: &Arc<Self>) -> BudgetShare {
        BudgetShare { connection: self.clone(), uncounted: AtomicUsize::new(0), counted: AtomicUsize::new(0) }
    }

    /// `None` if too many are open already.
    pub(crate) fn open(self: &Arc<Self>) -> Option<OpenRequest> {
        let more = |open: usize| (open < MAX_OPEN).then_some(open + 1);
        self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| OpenRequest(self.clone()))
    }
}

// === impl BudgetShare ===

impl BudgetShare {
    /// Whether there is room for the head of a request.
    pub(crate) fn take_head<T>(&self, request: &Request<T>) -> bool {
        let of_header = |(name, value): (&HeaderName, &HeaderValue)| PER_HEADER + name.as_str().len() + value.len();
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        self.take(PER_REQUEST + target + request.headers().iter().map(of_header).sum::<usize>())
    }

    fn take(&self, bytes: usize) -> bool {
        let uncounted = self.connection.uncounted.take_some(bytes);
        self.uncounted.fetch_add(uncounted, Ordering::Relaxed);
        let counted = bytes - uncounted;
        let fits = counted == 0 || self.connection.shared.take(counted);
        if fits {
            self.counted.fetch_add(counted, Ordering::Relaxed);
        }
        fits
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.connection.uncounted.give_back(*self.uncounted.get_mut());
        self.connection.shared.give_back(*self.counted.get_mut());
    }
}

// === impl OpenRequest ===

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Intake ===

impl Intake {
    /// With a share of the budget for unauthenticated callers, without one for authenticated ones.
    pub(crate) fn new(timeout: Duration, share: Option<BudgetShare>) -> Self {
        let limit = if share.is_some() { MAX_UNAUTHENTICATED_BODY } else { MAX_BODY };
        let counted = AtomicUsize::new(0);
        Self(Arc::new(IntakeState {
            unauthenticated: share.map(|share| UnauthenticatedBody { counted, share }),
            limit: AtomicUsize::new(limit),
            timeout,
            is_upload: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
            refusal: OnceLock::new(),
            is_reported: AtomicBool::new(false),
        }))
    }

    pub(crate) fn body(&self, body: Incoming) -> Body {
        if body.is_end_stream() {
            return Body::empty();
        }
        self.0.is_unread.store(true, Ordering::Relaxed);
        let until = Box::pin(sleep_until(Instant::now() + self.0.timeout));
        Body::new(IncomingBody { body, intake: self.clone(), received: 0, until, excess: None })
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.0.is_unread.load(Ordering::Relaxed)
    }

    /// A refusal that the surface did not see or misread, as the response to the request.
    pub(crate) fn unreported(&self, request: ExpectedFormat) -> Option<Response<Body>> {
        let error = self.0.refusal.get().filter(|_| !self.0.is_reported.load(Ordering::Relaxed))?;
        Some(if request.is_grpc { grpc(error) } else { error.clone().into_response() })
    }

    fn refuse(&self, error: Error) -> Box<dyn StdError + Send + Sync> {
        let _ = self.0.refusal.set(error);
        Box::new(BodyError(self.clone()))
    }
}

/// The format in which the request expects its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpectedFormat {
    is_grpc: bool,
}

// === impl ExpectedFormat ===

impl ExpectedFormat {
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

// === impl IncomingBody ===

impl IncomingBody {
    /// Checks what has arrived so far.
    fn check(&self) -> Result<(), Error> {
        let limit = self.intake.0.limit.load(Ordering::Relaxed);
        let Some(unauthenticated) = &self.intake.0.unauthenticated else {
            if self.received > limit && !self.intake.0.is_upload.load(Ordering::Relaxed) {
                let message = format!("The body is larger than {limit} bytes.");
                return Err(Error::new(Code::TooLarge, message).hint("Upload larger data as an artifact."));
            }
            return Ok(());
        };
        if self.received > limit {
            let message = format!("Without a credential, a body can have at most {limit} bytes.");
            return Err(Error::new(Code::TooLarge, message).hint("Send a credential, or less data."));
        }
        let more = self.received.saturating_sub(unauthenticated.counted.load(Ordering::Relaxed));
        if !unauthenticated.share.take(more) {
            return Err(busy());
        }
        unauthenticated.counted.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn late(&self) -> Error {
        let message = format!("The body did not arrive within {} seconds.", self.intake.0.timeout.as_secs_f32());
        Error::new(Code::RequestTimeout, message)
    }
}

impl hyper::body::Body for IncomingBody {
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

// === impl BodyError ===

impl BodyError {
    fn tell(&self) -> Error {
        self.0.0.is_reported.store(true, Ordering::Relaxed);
        let known = self.0.0.refusal.get().cloned();
        known.unwrap_or_else(|| Error::new(Code::InvalidRequest, "The body was cut off."))
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.0.refusal.get() {
            Some(error) => error.message.fmt(f),
            None => f.write_str("The body was cut off."),
        }
    }
}

impl StdError for BodyError {}
