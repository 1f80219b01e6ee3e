//! A stream that can be cut at any moment: from then on, reads and writes fail, whatever the SSH library has queued. A
//! message to the library would have to wait behind a bulk transfer.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::backpressure::RequestBackpressure;

pub(super) struct SeverableStream<S> {
    stream: S,
    gate: Arc<RequestBackpressure>,
    /// One wait per direction, so that each keeps its own waker.
    reading: Pin<Box<WaitForCancellationFutureOwned>>,
    writing: Pin<Box<WaitForCancellationFutureOwned>>,
}

fn poll_whole(cut: Pin<&mut WaitForCancellationFutureOwned>, context: &mut Context<'_>) -> io::Result<()> {
    match cut.poll(context) {
        Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was cut")),
        Poll::Pending => Ok(()),
    }
}

// === impl SeverableStream ===

impl<S> SeverableStream<S> {
    pub(super) fn new(stream: S, gate: Arc<RequestBackpressure>, cut: &CancellationToken) -> Self {
        let wait = || Box::pin(cut.clone().cancelled_owned());
        Self { stream, gate, reading: wait(), writing: wait() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SeverableStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        poll_whole(self.reading.as_mut(), context)?;
        std::task::ready!(self.gate.poll_open(context))?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SeverableStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_whole(self.writing.as_mut(), context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_whole(self.writing.as_mut(), context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn waiters_on_a_cut_stream_fail_immediately() {
        let (here, mut there) = tokio::io::duplex(8);
        let cut = CancellationToken::new();
        let (mut reading, mut writing) = tokio::io::split(SeverableStream::new(here, Arc::default(), &cut));
        there.write_all(b"in").await.unwrap();
        let mut buffer = [0; 2];
        reading.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"in");

        let reader = tokio::spawn(async move { reading.read(&mut [0; 8]).await.map_err(|error| error.kind()) });
        // Nothing reads at the other end, so this waits as well.
        let writer = tokio::spawn(async move { writing.write_all(&[0; 64]).await.map_err(|error| error.kind()) });
        tokio::task::yield_now().await;
        cut.cancel();
        assert_eq!(reader.await.unwrap(), Err(io::ErrorKind::ConnectionAborted));
        assert_eq!(writer.await.unwrap(), Err(io::ErrorKind::ConnectionAborted));
    }
}
