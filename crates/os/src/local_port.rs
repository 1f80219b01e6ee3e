//! A port for programs of this machine that know a secret. Every program of the machine reaches it, so whoever hasn't shown
//! the secret gets little: a place among few, which the next one takes, and few bytes that are read.

use std::{
    collections::BTreeMap,
    io,
    net::{Shutdown, SocketAddr},
    os::fd::AsFd as _,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

#[derive(Debug)]
pub struct GuardedPort {
    listener: TcpListener,
    strangers: Arc<Mutex<UnprovenConnections>>,
}

/// A connection that is heard in full once its proof was given.
#[derive(Debug)]
pub struct GuardedStream {
    stream: TcpStream,
    proof: Arc<ConnectionProof>,
    /// How much is still read of a stranger.
    left: usize,
}

/// Whether a connection has shown the secret.
#[derive(Debug)]
pub struct ConnectionProof {
    is_given: AtomicBool,
    number: u64,
    strangers: Arc<Mutex<UnprovenConnections>>,
}

/// Connections without a proof, the oldest first: a second handle of each, to close it.
#[derive(Debug, Default)]
struct UnprovenConnections {
    open: BTreeMap<u64, std::net::TcpStream>,
    next: u64,
}

/// How many connections may be without a proof. A new one takes the place of the oldest.
const MAX_STRANGERS: usize = 64;
/// Enough for the head of a request.
const MAX_UNPROVED: usize = 64 << 10;
const RETRY_DELAY: Duration = Duration::from_millis(200);

// === impl GuardedPort ===

impl GuardedPort {
    pub fn new(listener: TcpListener) -> Self {
        Self { listener, strangers: Arc::default() }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next connection. One that fails is skipped.
    pub async fn next(&self) -> (GuardedStream, SocketAddr) {
        loop {
            match self.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    tracing::warn!(%error, "can't accept a connection");
                    // Too many files are open, and it would fail at once again.
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(GuardedStream, SocketAddr)> {
        let (stream, from) = self.listener.accept().await?;
        // What is sent is short and must not wait for the acknowledgement of the previous packet.
        let _ = stream.set_nodelay(true);
        let handle = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        let number = lock(&self.strangers).admit(handle);
        let proof =
            ConnectionProof { is_given: AtomicBool::new(false), number, strangers: Arc::clone(&self.strangers) };
        Ok((GuardedStream { stream, proof: Arc::new(proof), left: MAX_UNPROVED }, from))
    }
}

// === impl GuardedStream ===

impl GuardedStream {
    pub fn proof(&self) -> Arc<ConnectionProof> {
        Arc::clone(&self.proof)
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, proof, left } = self.get_mut();
        if proof.is_given.load(Ordering::Acquire) {
            return Pin::new(stream).poll_read(context, into);
        }
        if *left == 0 {
            let refusal = "the connection sent too much before it showed the secret";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal)));
        }
        let mut bytes = [0; 4096];
        let room = bytes.len().min(into.remaining()).min(*left);
        let mut part = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(stream).poll_read(context, &mut part))?;
        *left -= part.filled().len();
        into.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Drop for GuardedStream {
    fn drop(&mut self) {
        self.proof.leave();
    }
}

// === impl ConnectionProof ===

impl ConnectionProof {
    /// The connection has shown the secret. It is no longer closed for others.
    pub fn give(&self) {
        if !self.is_given.swap(true, Ordering::AcqRel) {
            self.leave();
        }
    }

    fn leave(&self) {
        lock(&self.strangers).open.remove(&self.number);
    }
}

// === impl UnprovenConnections ===

impl UnprovenConnections {
    fn admit(&mut self, socket: std::net::TcpStream) -> u64 {
        if self.open.len() >= MAX_STRANGERS
            && let Some((_, oldest)) = self.open.pop_first()
        {
            // Its next read ends.
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let number = self.next;
        self.next += 1;
        self.open.insert(number, socket);
        number
    }
}

fn lock(strangers: &Mutex<UnprovenConnections>) -> MutexGuard<'_, UnprovenConnections> {
    strangers.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn port() -> (GuardedPort, SocketAddr) {
        let port = GuardedPort::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = port.local_addr().unwrap();
        (port, address)
    }

    #[tokio::test]
    async fn a_new_connection_takes_the_place_of_the_oldest_stranger() {
        let (port, address) = port().await;
        let mut clients = Vec::new();
        let mut served = Vec::new();
        for number in 0..MAX_STRANGERS + 2 {
            clients.push(TcpStream::connect(address).await.unwrap());
            served.push(port.next().await.0);
            if number == 0 {
                served[0].proof().give();
            }
        }
        // The first has shown the secret; the second made room.
        assert_eq!(served[1].read(&mut [0; 8]).await.unwrap(), 0);
        assert_eq!(clients[1].read(&mut [0; 8]).await.unwrap(), 0);
        for number in [0, 2, MAX_STRANGERS + 1] {
            clients[number].write_all(b"hello").await.unwrap();
            let mut heard = [0; 5];
            served[number].read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"hello");
        }
        drop(served);
        assert!(lock(&port.strangers).open.is_empty());
    }

    #[tokio::test]
    async fn little_is_read_of_a_stranger_and_everything_afterwards() {
        let (port, address) = port().await;
        let sent = vec![7; 4 * MAX_UNPROVED];
        let mut stranger = TcpStream::connect(address).await.unwrap();
        let (mut heard, _) = port.next().await;
        let told = sent.clone();
        let writing = tokio::spawn(async move {
            let _ = stranger.write_all(&told).await;
            stranger
        });
        let mut bytes = Vec::new();
        let refused = heard.read_to_end(&mut bytes).await.unwrap_err();
        assert_eq!((refused.kind(), bytes.len()), (io::ErrorKind::PermissionDenied, MAX_UNPROVED));
        heard.proof().give();
        let rest = async {
            let mut rest = vec![0; sent.len() - MAX_UNPROVED];
            heard.read_exact(&mut rest).await.unwrap();
        };
        tokio::join!(rest, writing).1.unwrap();
    }
}
