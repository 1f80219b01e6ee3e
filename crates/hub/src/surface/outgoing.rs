//! Response bodies on the port: each keeps its caller's request slot until the connection has taken every byte, and an
//! HTTP/2 stream whose client takes nothing for too long is reset.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, Response, StatusCode},
};
use bytes::Buf;
use futures_util::task::AtomicWaker;
use hyper::{
    body::{Body as _, Frame, SizeHint},
    rt::Executor,
};
use tokio::time::{Instant, Sleep, sleep};

use crate::{
    stream::OpenStream,
    surface::{
        in_progress::{RequestSlot, WAIT_AFTER},
        intake::OpenRequest,
    },
};

/// hyper hands a frame to HTTP/2 as soon as the client accepts one byte of it. Large frames are cut into pieces, so that
/// the rest stays here.
const MAX_PIECE: usize = 64 << 10;

tokio::task_local! {
    /// The delivery of the HTTP/2 stream that the current task serves.
    static CURRENT: Arc<ResponseDelivery>;
}

/// How a response reaches its client.
#[derive(Debug)]
pub(crate) struct ResponseDelivery {
    slot: Mutex<Option<RequestSlot>>,
    unauthenticated: Mutex<Option<OpenRequest>>,
    began: Instant,
    /// Milliseconds after `began` when the client last took something.
    progress: AtomicU64,
    /// Pieces that the connection has not written yet.
    waiting: AtomicUsize,
    /// Woken when there are none left.
    all_taken: AtomicWaker,
}

/// A response body on its way to the client.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    body: Body,
    /// What is left of the last frame.
    rest: Bytes,
    /// `None` for streams: they have their own limit, and may idle.
    delivery: Option<Arc<ResponseDelivery>>,
    /// Set once the body has ended, with its trailers.
    end: Option<Option<HeaderMap>>,
    /// Created when the body first pauses.
    pause: Option<Pin<Box<Sleep>>>,
    is_paused: bool,
    /// Ends only when all pieces are taken. Until then, the stream can be reset.
    holds_end: bool,
    /// At least one piece was handed over.
    has_begun: bool,
    /// Of a stream.
    unauthenticated: Option<OpenRequest>,
}

/// Bytes that the connection writes.
#[derive(Debug)]
pub(crate) struct ResponseChunk {
    bytes: Bytes,
    delivery: Option<Arc<ResponseDelivery>>,
}

/// What a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    Complete,
    /// An [`OpenStream`], or a socket.
    Stream,
}

/// Runs the tasks of HTTP/2 streams. A task ends, which resets its stream, when the client has taken nothing for
/// `timeout` while something was waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamExecutor {
    timeout: Duration,
}

// === impl StreamExecutor ===

impl StreamExecutor {
    pub(crate) const fn new(timeout: Duration) -> Self {
        Self { timeout }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        tokio::spawn(run_stream(stream, self.timeout));
    }
}

async fn run_stream(stream: impl Future<Output = ()>, timeout: Duration) {
    let delivery = Arc::new(ResponseDelivery::new());
    let mut stream = pin!(CURRENT.scope(delivery.clone(), stream));
    let mut timer = pin!(sleep(timeout));
    poll_fn(|context| {
        if stream.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let Some(since) = delivery.waiting_since() else { return Poll::Pending };
            ready!(timer.as_mut().poll(context));
            // The timer is set only here, so that a response that is taken costs little.
            let until = since + timeout;
            if until <= Instant::now() {
                tracing::debug!("a response that nobody takes is cut");
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    })
    .await;
}

// === impl ResponseDelivery ===

impl ResponseDelivery {
    fn new() -> Self {
        Self {
            slot: Mutex::default(),
            unauthenticated: Mutex::default(),
            began: Instant::now(),
            progress: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            all_taken: AtomicWaker::new(),
        }
    }

    /// Since when the client has taken nothing. `None` if nothing waits for it.
    fn waiting_since(&self) -> Option<Instant> {
        let waits = self.waiting.load(Ordering::Acquire) > 0;
        waits.then(|| self.began + Duration::from_millis(self.progress.load(Ordering::Relaxed)))
    }

    fn set_slot(&self, slot: Option<RequestSlot>) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = slot;
    }

    fn begin_wait(&self) {
        if let Some(slot) = &mut *self.slot.lock().unwrap_or_else(PoisonError::into_inner) {
            slot.begin_wait();
        }
    }

    fn note_progress(&self) {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.progress.store(millis, Ordering::Relaxed);
    }

    fn hand_over(&self) {
        if self.waiting.load(Ordering::Relaxed) == 0 {
            self.note_progress();
        }
        self.waiting.fetch_add(1, Ordering::Release);
    }

    fn taken(&self) {
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.all_taken.wake();
        }
    }

    fn poll_taken(&self, context: &Context<'_>) -> Poll<()> {
        self.all_taken.register(context.waker());
        if self.waiting.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

// === impl ResponseForm ===

impl ResponseForm {
    pub(crate) fn of(response: &Response<Body>) -> Self {
        let is_socket = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        let is_stream = is_socket || response.extensions().get::<OpenStream>().is_some();
        if is_stream { Self::Stream } else { Self::Complete }
    }
}

// === impl ResponseBody ===

impl ResponseBody {
    /// Keeps the slot until the client has taken the response, unless it is a stream. A refused request has none.
    pub(crate) fn new(body: Body, form: ResponseForm, slot: Option<RequestSlot>) -> Self {
        if form == ResponseForm::Stream {
            return Self::from(body);
        }
        let stream = CURRENT.try_with(Arc::clone).ok();
        let is_small = body.size_hint().upper().is_some_and(|size| size <= MAX_PIECE as u64);
        // Waiting for the end costs a frame, so a small response waits only when its caller has many.
        let is_crowded = slot.as_ref().is_none_or(RequestSlot::is_crowded);
        let holds_end = stream.is_some() && (!is_small || is_crowded);
        let delivery = stream.unwrap_or_else(|| Arc::new(ResponseDelivery::new()));
        delivery.set_slot(slot);
        Self { delivery: Some(delivery), holds_end, ..Self::from(body) }
    }

    /// An unauthenticated request counts as open until the client has taken the response, or the stream has ended.
    pub(crate) fn of_unauthenticated(mut self, request: Option<OpenRequest>) -> Self {
        match &self.delivery {
            Some(delivery) => *delivery.unauthenticated.lock().unwrap_or_else(PoisonError::into_inner) = request,
            None => self.unauthenticated = request,
        }
        self
    }

    fn hand_over(&mut self) -> Frame<ResponseChunk> {
        let delivery = self.delivery.clone();
        if let Some(delivery) = &delivery {
            delivery.hand_over();
        }
        self.has_begun = true;
        let size = if delivery.is_some() { self.rest.len().min(MAX_PIECE) } else { self.rest.len() };
        Frame::data(ResponseChunk { bytes: self.rest.split_to(size), delivery })
    }

    /// A response that pauses for long waits for something to happen, like a request that is not answered at once.
    fn pause(&mut self, context: &mut Context<'_>) {
        let Some(delivery) = &self.delivery else { return };
        let timer = self.pause.get_or_insert_with(|| Box::pin(sleep(WAIT_AFTER)));
        if !self.is_paused {
            self.is_paused = true;
            timer.as_mut().reset(Instant::now() + WAIT_AFTER);
        }
        if timer.as_mut().poll(context).is_ready() {
            delivery.begin_wait();
        }
    }
}

impl From<Body> for ResponseBody {
    fn from(body: Body) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            delivery: None,
            end: None,
            pause: None,
            is_paused: false,
            holds_end: false,
            has_begun: false,
            unauthenticated: None,
        }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = ResponseChunk;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            return Poll::Ready(Some(Ok(this.hand_over())));
        }
        while this.end.is_none() {
            let frame = match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.end = Some(None);
                    break;
                }
                Poll::Pending => {
                    this.pause(context);
                    return Poll::Pending;
                }
            };
            this.is_paused = false;
            match frame.into_data() {
                Ok(bytes) => {
                    this.rest = bytes;
                    return Poll::Ready(Some(Ok(this.hand_over())));
                }
                Err(other) => this.end = other.into_trailers().ok().map(Some),
            }
        }
        if let Some(delivery) = this.delivery.as_ref().filter(|_| this.holds_end) {
            ready!(delivery.poll_taken(context));
        }
        let trailers = this.end.as_mut().and_then(Option::take);
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let is_held = self.holds_end && self.has_begun;
        self.rest.is_empty() && !is_held && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() {
            return self.body.size_hint();
        }
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

// === impl ResponseChunk ===

impl Buf for ResponseChunk {
    fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.bytes
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(delivery) = &self.delivery {
            delivery.note_progress();
        }
    }
}

impl Drop for ResponseChunk {
    fn drop(&mut self) {
        if let Some(delivery) = &self.delivery {
            delivery.taken();
        }
    }
}
