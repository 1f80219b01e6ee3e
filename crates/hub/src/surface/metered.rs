//! The bytes of one connection: limits how much is read from a socket before it authenticates with its first frame, and what
//! incomplete messages take (requests have their own limits), breaks if the client reads no response for too long, and closes so that a client
//! which is still sending can read its response.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};

use crate::connection_slot::ConnectionSlot;

/// The first frame of a socket, with masking and what the client sends right after it.
const MAX_FIRST_FRAME: usize = 64 << 10;
/// Identifies the error that ends such a connection.
pub(crate) const FIRST_FRAME_TOO_LONG: &str = "the first frame is too long";
/// The same for one whose caller has sent too much of messages that aren't complete.
pub(crate) const TOO_MUCH_UNREAD: &str = "the caller's incomplete messages take too much";

/// How long a client that is still sending has to notice its response.
const LINGER: Duration = Duration::from_secs(5);

/// A client's bytes, counted until it has authenticated.
#[derive(Debug)]
pub(crate) struct MeteredStream<S> {
    stream: S,
    connection_slot: ConnectionSlot,
    read: usize,
    response_timeout: Duration,
    /// Created when the client first fails to keep up.
    stalled: Option<Pin<Box<Sleep>>>,
    /// The last write had to wait.
    is_stalled: bool,
    /// Set once our side is closed. Until it elapses, what the client still sends is discarded.
    lingering: Option<Pin<Box<Sleep>>>,
}

// === impl MeteredStream ===

impl<S> MeteredStream<S> {
    pub(crate) const fn new(stream: S, connection_slot: ConnectionSlot, response_timeout: Duration) -> Self {
        Self { stream, connection_slot, read: 0, response_timeout, stalled: None, is_stalled: false, lingering: None }
    }

    /// The result of a write, or an error if the client has read nothing for too long.
    fn in_time<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() || self.connection_slot.may_stall() {
            self.is_stalled = false;
            return written;
        }
        let timeout = self.response_timeout;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if !self.is_stalled {
            self.is_stalled = true;
            timer.as_mut().reset(Instant::now() + timeout);
        }
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> MeteredStream<S> {
    /// Discards what arrives until the client closes, or time is up.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut scratch = [0; 16 << 10];
        while let Some(until) = &mut self.lingering
            && until.as_mut().poll(context).is_pending()
        {
            let mut discarded = ReadBuf::new(&mut scratch);
            let read = ready!(Pin::new(&mut self.stream).poll_read(context, &mut discarded));
            if read.is_err() || discarded.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let arrived = buffer.filled().len() - before;
        if !self.connection_slot.receive(arrived) {
            return Poll::Ready(Err(io::Error::other(TOO_MUCH_UNREAD)));
        }
        if self.connection_slot.is_introducing() {
            self.read += arrived;
            if self.read > MAX_FIRST_FRAME {
                return Poll::Ready(Err(io::Error::other(FIRST_FRAME_TOO_LONG)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.in_time(context, flushed)
    }

    /// Closing a socket that has unread bytes resets the connection, and the client may lose a response that it has
    /// not read yet.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.connection_slot.is_still_sending() {
                return Poll::Ready(Ok(()));
            }
            self.lingering = Some(Box::pin(sleep(LINGER)));
        }
        self.poll_linger(context).map(Ok)
    }
}
