//! Limits how much is read from a socket before it authenticates with its first frame. Requests have their own limits.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection_slot::ConnectionSlot;

/// The first frame of a socket, with masking and what the client sends right after it.
const MAX_FIRST_FRAME: usize = 64 << 10;
/// Identifies the error that ends such a connection.
pub(crate) const FIRST_FRAME_TOO_LONG: &str = "the first frame is too long";

/// A client's bytes, counted until it has authenticated.
#[derive(Debug)]
pub(crate) struct Metered<S> {
    stream: S,
    seat: ConnectionSlot,
    read: usize,
}

// === impl Metered ===

impl<S> Metered<S> {
    pub(crate) const fn new(stream: S, seat: ConnectionSlot) -> Self {
        Self { stream, seat, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.seat.is_introducing() {
            self.read += buffer.filled().len() - before;
            if self.read > MAX_FIRST_FRAME {
                return Poll::Ready(Err(io::Error::other(FIRST_FRAME_TOO_LONG)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
