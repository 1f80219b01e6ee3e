//! Limits open connections: a cap on all, a cap per address before authentication, and a reserve for devices. When
//! full, the oldest unauthenticated connection is closed, so that half-open requests can't lock others out.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use attache_protocol::Code;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::{Error, Handle, Options, Principal, PrincipalKind, Result, identity::limiter::ClientNetwork};

/// One in this many connections is reserved for devices.
const RESERVE: usize = 8;

#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    max: usize,
    /// Per address, before it has authenticated.
    max_strangers: usize,
    /// For people and programs.
    max_known: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    entries: HashMap<u64, ConnectionEntry>,
    /// By age, because the numbers grow.
    strangers: BTreeSet<u64>,
    by_network: HashMap<ClientNetwork, BTreeSet<u64>>,
    known: usize,
}

#[derive(Debug)]
struct ConnectionEntry {
    class: ConnectionClass,
    evicted: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionClass {
    /// Not authenticated. A trusted proxy has no network of its own.
    Stranger(Option<ClientNetwork>),
    /// A person, a program, or the far end of a tunnel.
    Known,
    Device,
}

/// A connection's place in the limit. A WebSocket keeps it after the HTTP upgrade.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionSlot(Arc<ConnectionSlotInner>);

struct ConnectionSlotInner {
    hub: Handle,
    connections: Arc<ConnectionSlots>,
    number: u64,
    evicted: CancellationToken,
    /// The head of a request has arrived.
    begun: AtomicBool,
    /// It became a socket that authenticates with its first frame.
    introduces_itself: AtomicBool,
    /// Its last request was answered before the body had arrived.
    still_sending: AtomicBool,
    /// The highest class it has reached. Never decreases.
    rank: AtomicU8,
}

// === impl ConnectionSlots ===

impl ConnectionSlots {
    pub(crate) fn new(options: &Options) -> Self {
        let max = options.max_connections;
        Self {
            max,
            max_strangers: options.max_unauthenticated_per_address.min(max),
            max_known: max - max / RESERVE,
            open: Mutex::default(),
        }
    }

    /// A slot for a new connection. `None` if authenticated connections hold all slots.
    pub(crate) fn admit(self: &Arc<Self>, hub: &Handle, from: IpAddr) -> Option<ConnectionSlot> {
        let network = (!hub.options().trusts_proxy(from)).then(|| ClientNetwork::from(from));
        let evicted = CancellationToken::new();
        let number = self.lock().enter(self, network, evicted.clone())?;
        hub.metrics().connections.add(1);
        Some(ConnectionSlot(Arc::new(ConnectionSlotInner {
            hub: hub.clone(),
            connections: self.clone(),
            number,
            evicted,
            begun: AtomicBool::new(false),
            introduces_itself: AtomicBool::new(false),
            still_sending: AtomicBool::new(false),
            rank: AtomicU8::new(0),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    fn enter(
        &mut self,
        limits: &ConnectionSlots,
        network: Option<ClientNetwork>,
        evicted: CancellationToken,
    ) -> Option<u64> {
        let same = network.as_ref().and_then(|network| self.by_network.get(network));
        if let Some(oldest) = same.filter(|same| same.len() >= limits.max_strangers).and_then(BTreeSet::first) {
            let oldest = *oldest;
            self.evict(oldest);
        }
        if self.entries.len() >= limits.max {
            let oldest = *self.strangers.first()?;
            self.evict(oldest);
        }
        let number = self.next;
        self.next += 1;
        self.strangers.insert(number);
        if let Some(network) = network {
            self.by_network.entry(network).or_default().insert(number);
        }
        self.entries.insert(number, ConnectionEntry { class: ConnectionClass::Stranger(network), evicted });
        Some(number)
    }

    fn evict(&mut self, number: u64) {
        if let Some(entry) = self.leave(number) {
            entry.evicted.cancel();
        }
    }

    fn leave(&mut self, number: u64) -> Option<ConnectionEntry> {
        let entry = self.entries.remove(&number)?;
        match entry.class {
            ConnectionClass::Stranger(network) => self.forget_stranger(number, network),
            ConnectionClass::Known => self.known -= 1,
            ConnectionClass::Device => {}
        }
        Some(entry)
    }

    fn forget_stranger(&mut self, number: u64, network: Option<ClientNetwork>) {
        self.strangers.remove(&number);
        let Some(network) = network else { return };
        if let Some(same) = self.by_network.get_mut(&network) {
            same.remove(&number);
            if same.is_empty() {
                self.by_network.remove(&network);
            }
        }
    }

    /// `false` if the limit for the new class is reached.
    fn promote(&mut self, number: u64, to: ConnectionClass, max_known: usize) -> bool {
        let Some(class) = self.entries.get(&number).map(|entry| entry.class) else { return false };
        match (class, to) {
            (ConnectionClass::Device, _) | (ConnectionClass::Known, ConnectionClass::Known) => return true,
            (_, ConnectionClass::Known) if self.known >= max_known => return false,
            _ => {}
        }
        match class {
            ConnectionClass::Stranger(network) => self.forget_stranger(number, network),
            ConnectionClass::Known => self.known -= 1,
            ConnectionClass::Device => {}
        }
        if to == ConnectionClass::Known {
            self.known += 1;
        }
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.class = to;
        }
        true
    }
}

// === impl ConnectionClass ===

impl ConnectionClass {
    const fn rank(self) -> u8 {
        match self {
            Self::Stranger(_) => 0,
            Self::Known => 1,
            Self::Device => 2,
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// The head of a request has arrived.
    pub(crate) fn begin(&self) {
        self.0.begun.store(true, Ordering::Relaxed);
        self.0.still_sending.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// From now on, the connection is a socket that must authenticate with its first frame.
    pub(crate) fn introduce(&self) {
        self.0.introduces_itself.store(true, Ordering::Relaxed);
    }

    /// Whether to limit reading, because the first frame has not authenticated yet.
    pub(crate) fn is_introducing(&self) -> bool {
        self.0.introduces_itself.load(Ordering::Relaxed) && self.0.rank.load(Ordering::Relaxed) == 0
    }

    /// The last request was answered before its body had arrived, so the client may still be sending.
    pub(crate) fn cut(&self) {
        self.0.still_sending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_still_sending(&self) -> bool {
        self.0.still_sending.load(Ordering::Relaxed)
    }

    /// Resolves when the connection is evicted to make room for another.
    pub(crate) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.0.evicted.cancelled()
    }

    /// The connection has authenticated. Fails if people and programs use all slots that are not reserved for devices.
    pub(crate) fn identify(&self, by: &Principal) -> Result<()> {
        self.promote(match by.who {
            PrincipalKind::Runtime { .. } => ConnectionClass::Device,
            PrincipalKind::Key { .. } | PrincipalKind::Outside { .. } | PrincipalKind::Run { .. } => {
                ConnectionClass::Known
            }
            PrincipalKind::Anonymous { .. } => return Ok(()),
        })
    }

    /// The same for the remote end of a tunnel, whose token is not a hub credential.
    pub(crate) fn accept(&self) -> Result<()> {
        self.promote(ConnectionClass::Known)
    }

    fn promote(&self, to: ConnectionClass) -> Result<()> {
        let (connections, rank) = (&self.0.connections, to.rank());
        // Almost every request arrives on a connection that is already authenticated.
        if self.0.rank.load(Ordering::Relaxed) >= rank {
            return Ok(());
        }
        if connections.lock().promote(self.0.number, to, connections.max_known) {
            self.0.rank.fetch_max(rank, Ordering::Relaxed);
            return Ok(());
        }
        self.0.hub.metrics().connections_refused.add(1);
        Err(Error::new(Code::Overloaded, "Too many connections are open.")
            .hint("Try again in a moment. To allow more, start the hub with `--max-connections N`."))
    }
}

// === impl ConnectionSlotInner ===

impl std::fmt::Debug for ConnectionSlotInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionSlot").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Drop for ConnectionSlotInner {
    fn drop(&mut self) {
        self.connections.lock().leave(self.number);
        self.hub.metrics().connections.take(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max: usize, max_strangers: usize) -> ConnectionSlots {
        let mut options = Options::new("", "127.0.0.1:0".parse().unwrap());
        (options.max_connections, options.max_unauthenticated_per_address) = (max, max_strangers);
        ConnectionSlots::new(&options)
    }

    fn network(last: u8) -> Option<ClientNetwork> {
        Some(ClientNetwork::from(IpAddr::from([192, 0, 2, last])))
    }

    #[test]
    fn the_oldest_unauthenticated_connection_is_evicted() {
        let (limits, mut open) = (limits(16, 4), OpenConnections::default());
        let enter = |open: &mut OpenConnections, from| open.enter(&limits, network(from), CancellationToken::new());
        let first: Vec<u64> = (0..4).map(|_| enter(&mut open, 1).unwrap()).collect();
        // The fifth connection of one address evicts its oldest one.
        let fifth = enter(&mut open, 1).unwrap();
        assert!(!open.entries.contains_key(&first[0]) && open.entries.contains_key(&fifth));
        assert!(open.promote(first[1], ConnectionClass::Known, limits.max_known));
        assert!(enter(&mut open, 1).is_some());
        assert!(open.entries.contains_key(&first[1]) && open.entries.contains_key(&first[2]));
        // Unauthenticated connections from many addresses evict the oldest of all.
        for from in 2..=30 {
            assert!(enter(&mut open, from).is_some());
        }
        assert_eq!((open.entries.len(), open.known), (16, 1));
        assert!(open.entries.contains_key(&first[1]));
    }

    #[test]
    fn the_reserve_is_for_devices() {
        let (limits, mut open) = (limits(16, 16), OpenConnections::default());
        let enter = |open: &mut OpenConnections| open.enter(&limits, network(1), CancellationToken::new());
        let all: Vec<u64> = (0..16).map(|_| enter(&mut open).unwrap()).collect();
        let promoted =
            all.iter().filter(|number| open.promote(**number, ConnectionClass::Known, limits.max_known)).count();
        assert_eq!(promoted, 14);
        assert!(
            open.promote(all[14], ConnectionClass::Device, limits.max_known)
                && open.promote(all[15], ConnectionClass::Device, limits.max_known)
        );
        assert_eq!(enter(&mut open), None, "everybody is known");
        open.leave(all[0]);
        assert_eq!((open.known, enter(&mut open).is_some()), (13, true));
    }
}
