//! A bad cable: a TCP proxy that cuts, delays, halves and duplicates what goes through it, in an order that a seed decides.
//!
//! It understands just enough of HTTP/1.1 and WebSocket to know where a frame begins and ends, so that what it duplicates
//! is a whole frame, as a careless relay would do, and not garbage.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_protocol::env::Env;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// How often, in a thousand pieces, each thing happens.
#[derive(Debug, Clone, Copy)]
pub struct ProxyFaults {
    pub cut: u16,
    pub halve: u16,
    pub duplicate: u16,
    pub delay: u16,
    pub max_delay: Duration,
}

/// How often each thing has happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub connections: u64,
    pub pieces: u64,
    pub cuts: u64,
    pub halves: u64,
    pub duplicates: u64,
    pub delays: u64,
}

#[derive(Debug)]
pub struct FaultyProxy {
    pub address: SocketAddr,
    shared: Arc<ProxyState>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct ProxyState {
    upstream: SocketAddr,
    faults: ProxyFaults,
    dice: Env,
    calm: AtomicBool,
    /// Cancelled to cut every connection at once.
    cable: Mutex<CancellationToken>,
    harm: FaultCounters,
}

#[derive(Debug, Default)]
struct FaultCounters {
    connections: AtomicU64,
    pieces: AtomicU64,
    cuts: AtomicU64,
    halves: AtomicU64,
    duplicates: AtomicU64,
    delays: AtomicU64,
}

/// What happens to one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkFate {
    Pass,
    Delay(Duration),
    Duplicate,
    Halve,
    Cut,
}

/// Cuts a byte stream into the pieces that a fate is drawn for.
#[derive(Debug, Default)]
struct ChunkSplitter {
    buffer: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct ProxyChunk {
    bytes: Vec<u8>,
    /// A whole data frame, which may come twice.
    is_frame: bool,
}

// === impl FaultyProxy ===

impl FaultyProxy {
    /// Listens on a port of its own and passes everything on to `upstream`.
    pub async fn start(upstream: SocketAddr, seed: u64, faults: ProxyFaults) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(ProxyState {
            upstream,
            faults,
            dice: Env::seeded(seed),
            calm: AtomicBool::new(false),
            cable: Mutex::new(CancellationToken::new()),
            harm: FaultCounters::default(),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// From now on everything passes.
    pub fn stop_faults(&self) {
        self.shared.calm.store(true, Ordering::SeqCst);
    }

    pub fn fault_counts(&self) -> FaultCounts {
        self.shared.harm.read()
    }

    /// Cuts every connection that is open now.
    pub fn cut(&self) {
        let fresh = CancellationToken::new();
        let old = std::mem::replace(&mut *self.shared.cable.lock().unwrap_or_else(PoisonError::into_inner), fresh);
        old.cancel();
        self.shared.harm.cuts.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.cut();
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<ProxyState>) {
    while let Ok((near, _)) = listener.accept().await {
        shared.harm.connections.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(forward_connection(near, Arc::clone(&shared)));
    }
}

/// One connection, until either side closes it or its fate does.
async fn forward_connection(near: TcpStream, shared: Arc<ProxyState>) {
    let Ok(far) = TcpStream::connect(shared.upstream).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let cable = shared.cable.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_socket = Arc::new(AtomicBool::new(false));
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    let up = pass(near_read, far_write, &shared, &is_socket);
    let down = pass(far_read, near_write, &shared, &is_socket);
    // Whichever way ends first takes the other with it, and both sockets are dropped.
    tokio::select! {
        _ = up => {}
        _ = down => {}
        () = cable.cancelled() => {}
    }
}

async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    shared: &ProxyState,
    is_socket: &AtomicBool,
) -> io::Result<()> {
    let mut pieces = ChunkSplitter::default();
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        for piece in pieces.take(&chunk[..read], is_socket) {
            shared.harm.pieces.fetch_add(1, Ordering::Relaxed);
            match shared.fate(piece.is_frame) {
                ChunkFate::Pass => to.write_all(&piece.bytes).await?,
                ChunkFate::Delay(time) => {
                    tokio::time::sleep(time).await;
                    to.write_all(&piece.bytes).await?;
                }
                ChunkFate::Duplicate => {
                    to.write_all(&piece.bytes).await?;
                    to.write_all(&piece.bytes).await?;
                }
                ChunkFate::Halve => {
                    to.write_all(&piece.bytes[..piece.bytes.len() / 2]).await?;
                    to.flush().await?;
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                ChunkFate::Cut => return Err(io::ErrorKind::ConnectionAborted.into()),
            }
        }
    }
}

// === impl ProxyState ===

impl ProxyState {
    fn fate(&self, is_frame: bool) -> ChunkFate {
        if self.calm.load(Ordering::SeqCst) {
            return ChunkFate::Pass;
        }
        let mut bytes = [0; 4];
        self.dice.fill(&mut bytes);
        let [low, high, time, _] = bytes;
        let ProxyFaults { cut, halve, duplicate, delay, max_delay: longest_delay } = self.faults;
        let drawn = u16::from_le_bytes([low, high]) % 1000;
        let harm = &self.harm;
        if drawn < cut {
            harm.cuts.fetch_add(1, Ordering::Relaxed);
            ChunkFate::Cut
        } else if drawn < cut + halve {
            harm.halves.fetch_add(1, Ordering::Relaxed);
            ChunkFate::Halve
        } else if drawn < cut + halve + duplicate && is_frame {
            harm.duplicates.fetch_add(1, Ordering::Relaxed);
            ChunkFate::Duplicate
        } else if drawn < cut + halve + duplicate + delay {
            harm.delays.fetch_add(1, Ordering::Relaxed);
            ChunkFate::Delay(longest_delay.mul_f64(f64::from(time) / 255.0))
        } else {
            ChunkFate::Pass
        }
    }
}

// === impl ChunkSplitter ===

impl ChunkSplitter {
    /// The pieces that are complete now. Before the upgrade whatever was read is one piece.
    fn take(&mut self, read: &[u8], is_socket: &AtomicBool) -> Vec<ProxyChunk> {
        self.buffer.extend_from_slice(read);
        let mut pieces = Vec::new();
        if !is_socket.load(Ordering::SeqCst) {
            let Some(end) = upgraded(&self.buffer) else {
                pieces.push(ProxyChunk { bytes: std::mem::take(&mut self.buffer), is_frame: false });
                return pieces;
            };
            is_socket.store(true, Ordering::SeqCst);
            pieces.push(ProxyChunk { bytes: self.buffer.drain(..end).collect(), is_frame: false });
        }
        while let Some(length) = frame_length(&self.buffer) {
            // Text and binary frames that are whole messages; control frames and fragments never come twice.
            let is_frame = matches!(self.buffer[0], 0x81 | 0x82);
            pieces.push(ProxyChunk { bytes: self.buffer.drain(..length).collect(), is_frame });
        }
        pieces
    }
}

/// Where the head of an answer that switches to WebSocket ends.
fn upgraded(buffer: &[u8]) -> Option<usize> {
    if !buffer.starts_with(b"HTTP/1.1 101") {
        return None;
    }
    buffer.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The length of the first frame, if it is there as a whole (RFC 6455 §5.2).
fn frame_length(buffer: &[u8]) -> Option<usize> {
    let second = *buffer.get(1)?;
    let mask = if second & 0x80 == 0 { 0 } else { 4 };
    let (head, payload) = match second & 0x7f {
        126 => (4, usize::from(u16::from_be_bytes(buffer.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(buffer.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, usize::from(short)),
    };
    let length = head + mask + payload;
    (buffer.len() >= length).then_some(length)
}

// === impl FaultCounters ===

impl FaultCounters {
    fn read(&self) -> FaultCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FaultCounts {
            connections: read(&self.connections),
            pieces: read(&self.pieces),
            cuts: read(&self.cuts),
            halves: read(&self.halves),
            duplicates: read(&self.duplicates),
            delays: read(&self.delays),
        }
    }
}

// === impl FaultCounts ===

impl FaultCounts {
    /// How many connections were broken.
    pub const fn broken(self) -> u64 {
        self.cuts + self.halves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_whatever_the_reads_are() {
        let text = |payload: &[u8]| [&[0x81, u8::try_from(payload.len()).unwrap()], payload].concat();
        let long = [&[0x81, 126, 1, 0][..], &[7; 256]].concat();
        let masked = [&[0x81, 0x83, 1, 2, 3, 4][..], b"abc"].concat();
        let ping = vec![0x89, 0];
        let head = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n".to_vec();
        let all = [head.clone(), text(b"one"), ping.clone(), long.clone(), masked.clone()].concat();
        let is_socket = AtomicBool::new(false);
        let mut pieces = ChunkSplitter::default();
        let whole: Vec<_> =
            pieces.take(&all, &is_socket).into_iter().map(|piece| (piece.bytes, piece.is_frame)).collect();
        assert_eq!(whole, [(head, false), (text(b"one"), true), (ping, false), (long.clone(), true), (masked, true)]);
        let mut found = Vec::new();
        for byte in &long {
            found.extend(pieces.take(&[*byte], &is_socket));
        }
        assert_eq!(found, [ProxyChunk { bytes: long, is_frame: true }]);
    }

    #[tokio::test]
    async fn a_calm_cable_passes_everything_and_a_cut_ends_it() {
        let echo = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = echo.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let faults = ProxyFaults { cut: 0, halve: 0, duplicate: 0, delay: 0, max_delay: Duration::ZERO };
        let proxy = FaultyProxy::start(upstream, 1, faults).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        proxy.cut();
        assert_eq!(stream.read(&mut heard).await.unwrap_or(0), 0);
        assert_eq!((proxy.fault_counts().connections, proxy.fault_counts().broken()), (1, 1));
    }
}
