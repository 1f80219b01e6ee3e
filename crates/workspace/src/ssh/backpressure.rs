//! Backpressure per connection: above a limit of unanswered requests, nothing more is read from the stream until some
//! are answered, so that TCP slows the client down.
//!
//! The library reopens a channel's window as soon as data arrives, so the window alone limits nothing.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// Above this, reading pauses.
const PAUSE_READING_ABOVE: usize = 4 * 1024 * 1024;
/// Above this, the client sends without ever reading.
const MAX_UNANSWERED: usize = 16 * 1024 * 1024;

/// One per connection, shared by its stream and its channels.
#[derive(Debug, Default)]
pub(crate) struct RequestBackpressure {
    /// Bytes of received requests that are not answered.
    waiting: AtomicUsize,
    /// Channels that wait for the client to accept their replies. The client's window updates come after its requests,
    /// so the requests must still be read.
    stalled: AtomicUsize,
    reader: Mutex<Option<Waker>>,
}

// === impl RequestBackpressure ===

impl RequestBackpressure {
    pub(super) fn add(&self, bytes: usize) {
        self.waiting.fetch_add(bytes, Ordering::SeqCst);
    }

    pub(super) fn answered(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::SeqCst);
        self.wake();
    }

    /// Runs `reply`, which may wait for the client.
    pub(super) fn while_stalled<T>(&self, reply: impl FnOnce() -> T) -> T {
        self.stalled.fetch_add(1, Ordering::SeqCst);
        self.wake();
        let result = reply();
        self.stalled.fetch_sub(1, Ordering::SeqCst);
        result
    }

    /// Ready if the stream may be read.
    pub(super) fn poll_open(&self, context: &Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.load(Ordering::SeqCst) > MAX_UNANSWERED {
            return Poll::Ready(Err(io::Error::other("the client sends requests without reading the replies")));
        }
        if self.is_open() {
            return Poll::Ready(Ok(()));
        }
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        // Changes before the waker was registered woke nothing.
        if self.is_open() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn is_open(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) <= PAUSE_READING_ABOVE || self.stalled.load(Ordering::SeqCst) > 0
    }

    fn wake(&self) {
        if self.is_open()
            && let Some(waker) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(gate: &RequestBackpressure) -> Poll<bool> {
        gate.poll_open(&Context::from_waker(Waker::noop())).map(|result| result.is_ok())
    }

    #[test]
    fn reading_waits_while_much_is_unanswered() {
        let gate = RequestBackpressure::default();
        gate.add(PAUSE_READING_ABOVE);
        assert_eq!(poll(&gate), Poll::Ready(true));
        gate.add(1);
        assert_eq!(poll(&gate), Poll::Pending);
        gate.answered(1);
        assert_eq!(poll(&gate), Poll::Ready(true));
    }

    #[test]
    fn a_stalled_channel_keeps_reading_up_to_a_limit() {
        let gate = RequestBackpressure::default();
        gate.add(PAUSE_READING_ABOVE + 1);
        assert_eq!(gate.while_stalled(|| poll(&gate)), Poll::Ready(true));
        assert_eq!(poll(&gate), Poll::Pending);
        gate.add(MAX_UNANSWERED);
        assert_eq!(gate.while_stalled(|| poll(&gate)), Poll::Ready(false));
    }
}
