//! Limits open connections: a cap on all, a cap per address before authentication, a share per caller, and a
//! reserve for devices. When full, the oldest unauthenticated connection is closed, so that half-open requests can't lock others out.

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
};

use attache_protocol::{Actor, Code};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use crate::{Error, Handle, Options, Principal, PrincipalKind, Result, identity::limiter::ClientNetwork};

/// One in this many connections is reserved for devices.
const RESERVE: usize = 8;
/// A caller may use one in this many connections.
const SHARE: usize = 4;
/// A caller may use this many, however few there are.
const MIN_SHARE: usize = 16;
/// What the incomplete messages of one caller's sockets may take, and how much of each isn't counted.
const MAX_UNREAD: usize = 16 << 20;
const UNCOUNTED: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    max: usize,
    /// Per address, before it has authenticated.
    max_unauthenticated: usize,
    /// For people and programs.
    max_known: usize,
    /// For one of them, with all their keys.
    max_per_caller: usize,
    open: Mutex<OpenConnections>,
    /// What the incomplete messages of each caller take, except the first part of each.
    unread: Mutex<HashMap<Actor, usize>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    entries: HashMap<u64, ConnectionEntry>,
    /// By age, because the numbers grow.
    unauthenticated: BTreeSet<u64>,
    by_network: HashMap<ClientNetwork, BTreeSet<u64>>,
    known: usize,
    by_caller: HashMap<Actor, usize>,
}

#[derive(Debug)]
struct ConnectionEntry {
    class: ConnectionClass,
    /// Who authenticated, if their connections are counted.
    caller: Option<Actor>,
    evicted: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionClass {
    /// Not authenticated. A trusted proxy has no network of its own.
    Unauthenticated(Option<ClientNetwork>),
    /// A person, a program, or the far end of a tunnel.
    Known,
    Device,
}

/// What has arrived of a message that isn't complete.
#[derive(Debug, Default)]
struct UnreadMessage {
    /// Whose it is. `None`: not counted.
    sender: Option<Actor>,
    bytes: usize,
}

/// The number of a connection, unique while the hub runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(u64);

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
    /// Its response is a stream, or it became a socket.
    may_stall: AtomicBool,
    /// What has arrived of the socket's next message.
    unread: Mutex<UnreadMessage>,
    /// The highest class it has reached. Never decreases.
    rank: AtomicU8,
}

// === impl ConnectionSlots ===

impl ConnectionSlots {
    pub(crate) fn new(options: &Options) -> Self {
        let max = options.max_connections;
        Self {
            max,
            max_unauthenticated: options.max_unauthenticated_per_address.min(max),
            max_known: max - max / RESERVE,
            max_per_caller: (max / SHARE).max(MIN_SHARE),
            open: Mutex::default(),
            unread: Mutex::default(),
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
            may_stall: AtomicBool::new(false),
            unread: Mutex::default(),
            rank: AtomicU8::new(0),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The caller's incomplete messages take this much more, and this much less. `false` if that is too much.
    fn count_unread(&self, sender: &Actor, more: usize, less: usize) -> bool {
        if more == 0 && less == 0 {
            return true;
        }
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = unread.entry(sender.clone()).or_default();
        *taken = (*taken + more).saturating_sub(less);
        let fits = *taken <= MAX_UNREAD;
        if *taken == 0 {
            unread.remove(sender);
        }
        fits
    }
}

// === impl UnreadMessage ===

impl UnreadMessage {
    /// How much of so many bytes is counted.
    const fn counted(bytes: usize) -> usize {
        bytes.saturating_sub(UNCOUNTED)
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
        if let Some(oldest) = same.filter(|same| same.len() >= limits.max_unauthenticated).and_then(BTreeSet::first) {
            let oldest = *oldest;
            self.evict(oldest);
        }
        if self.entries.len() >= limits.max {
            let oldest = *self.unauthenticated.first()?;
            self.evict(oldest);
        }
        let number = self.next;
        self.next += 1;
        self.unauthenticated.insert(number);
        if let Some(network) = network {
            self.by_network.entry(network).or_default().insert(number);
        }
        self.entries.insert(
            number,
            ConnectionEntry { class: ConnectionClass::Unauthenticated(network), caller: None, evicted },
        );
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
            ConnectionClass::Unauthenticated(network) => self.forget_unauthenticated(number, network),
            ConnectionClass::Known => self.forget_known(entry.caller.as_ref()),
            ConnectionClass::Device => {}
        }
        Some(entry)
    }

    fn forget_unauthenticated(&mut self, number: u64, network: Option<ClientNetwork>) {
        self.unauthenticated.remove(&number);
        let Some(network) = network else { return };
        if let Some(same) = self.by_network.get_mut(&network) {
            same.remove(&number);
            if same.is_empty() {
                self.by_network.remove(&network);
            }
        }
    }

    fn forget_known(&mut self, caller: Option<&Actor>) {
        self.known -= 1;
        let Some(caller) = caller else { return };
        if let Some(count) = self.by_caller.get_mut(caller) {
            *count -= 1;
            if *count == 0 {
                self.by_caller.remove(caller);
            }
        }
    }

    /// `false` if the limit for the new class, or for this caller, is reached.
    fn promote(&mut self, limits: &ConnectionSlots, number: u64, to: ConnectionClass, caller: Option<Actor>) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        let class = entry.class;
        // Many callers share the connections of a proxy.
        let caller = caller.filter(|_| to == ConnectionClass::Known && class != ConnectionClass::Unauthenticated(None));
        let is_full = |caller: &Actor| self.by_caller.get(caller).is_some_and(|count| *count >= limits.max_per_caller);
        match (class, to) {
            (ConnectionClass::Device, _) | (ConnectionClass::Known, ConnectionClass::Known) => return true,
            (_, ConnectionClass::Known) if self.known >= limits.max_known => return false,
            (_, ConnectionClass::Known) if caller.as_ref().is_some_and(is_full) => return false,
            _ => {}
        }
        entry.class = to;
        let before = std::mem::replace(&mut entry.caller, caller.clone());
        match class {
            ConnectionClass::Unauthenticated(network) => self.forget_unauthenticated(number, network),
            ConnectionClass::Known => self.forget_known(before.as_ref()),
            ConnectionClass::Device => {}
        }
        if to == ConnectionClass::Known {
            self.known += 1;
        }
        if let Some(caller) = caller {
            *self.by_caller.entry(caller).or_default() += 1;
        }
        true
    }
}

// === impl ConnectionClass ===

impl ConnectionClass {
    const fn rank(self) -> u8 {
        match self {
            Self::Unauthenticated(_) => 0,
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
        self.0.may_stall.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// A request has shown a valid credential.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.rank.load(Ordering::Relaxed) > 0
    }

    /// From now on, the connection is a socket that must authenticate with its first frame.
    pub(crate) fn introduce(&self) {
        self.0.introduces_itself.store(true, Ordering::Relaxed);
    }

    /// Whether to limit reading, because the first frame has not authenticated yet.
    pub(crate) fn is_introducing(&self) -> bool {
        self.0.introduces_itself.load(Ordering::Relaxed) && !self.is_authenticated()
    }

    /// The last request was answered before its body had arrived, so the client may still be sending.
    pub(crate) fn cut(&self) {
        self.0.still_sending.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_still_sending(&self) -> bool {
        self.0.still_sending.load(Ordering::Relaxed)
    }

    /// The response is a stream, or the connection became a socket. Its reader may pause.
    pub(crate) fn allow_stalls(&self) {
        self.0.may_stall.store(true, Ordering::Relaxed);
    }

    pub(crate) fn may_stall(&self) -> bool {
        self.0.may_stall.load(Ordering::Relaxed)
    }

    /// The connection is a socket of this caller. From now on, what arrives of each message is counted until it is complete.
    pub(crate) fn count_messages(&self, by: &Principal) {
        let mut unread = self.unread();
        if unread.sender.is_none() {
            unread.sender = Some(by.holder());
        }
    }

    /// More of a message has arrived. `false` if the caller's incomplete messages take too much.
    pub(crate) fn receive(&self, bytes: usize) -> bool {
        let mut unread = self.unread();
        let UnreadMessage { sender: Some(sender), bytes: unread } = &mut *unread else { return true };
        let before = UnreadMessage::counted(*unread);
        *unread += bytes;
        self.0.connections.count_unread(sender, UnreadMessage::counted(*unread) - before, 0)
    }

    /// A message is complete.
    pub(crate) fn end_message(&self) {
        self.forget_unread(usize::MAX);
    }

    /// So many bytes were not part of it.
    pub(crate) fn forget_unread(&self, bytes: usize) {
        let mut unread = self.unread();
        let before = UnreadMessage::counted(unread.bytes);
        unread.bytes = unread.bytes.saturating_sub(bytes);
        let less = before - UnreadMessage::counted(unread.bytes);
        if let Some(sender) = &unread.sender {
            self.0.connections.count_unread(sender, 0, less);
        }
    }

    fn unread(&self) -> MutexGuard<'_, UnreadMessage> {
        self.0.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> ConnectionId {
        ConnectionId(self.0.number)
    }

    /// Resolves when the connection is evicted to make room for another.
    pub(crate) fn evicted(&self) -> WaitForCancellationFuture<'_> {
        self.0.evicted.cancelled()
    }

    /// The connection has authenticated. Fails if people and programs use all slots that are not reserved for devices,
    /// or this caller its share of them.
    pub(crate) fn identify(&self, by: &Principal) -> Result<()> {
        let class = match by.who {
            PrincipalKind::Runtime { .. } => ConnectionClass::Device,
            PrincipalKind::Key { .. } | PrincipalKind::Outside { .. } | PrincipalKind::Run { .. } => {
                ConnectionClass::Known
            }
            PrincipalKind::Anonymous { .. } => return Ok(()),
        };
        self.promote(class, Some(by))
    }

    /// The same for the remote end of a tunnel, whose token is not a hub credential.
    pub(crate) fn accept(&self) -> Result<()> {
        self.promote(ConnectionClass::Known, None)
    }

    fn promote(&self, to: ConnectionClass, by: Option<&Principal>) -> Result<()> {
        let (connections, rank) = (&self.0.connections, to.rank());
        // Almost every request arrives on a connection that is already authenticated.
        if self.0.rank.load(Ordering::Relaxed) >= rank {
            return Ok(());
        }
        if connections.lock().promote(connections, self.0.number, to, by.map(Principal::holder)) {
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
        let unread = self.unread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &unread.sender {
            self.connections.count_unread(sender, 0, UnreadMessage::counted(unread.bytes));
        }
        self.connections.lock().leave(self.number);
        self.hub.metrics().connections.take(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max: usize, max_unauthenticated: usize) -> ConnectionSlots {
        let mut options = Options::new("", "127.0.0.1:0".parse().unwrap());
        (options.max_connections, options.max_unauthenticated_per_address) = (max, max_unauthenticated);
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
        assert!(open.promote(&limits, first[1], ConnectionClass::Known, None));
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
            all.iter().filter(|number| open.promote(&limits, **number, ConnectionClass::Known, None)).count();
        assert_eq!(promoted, 14);
        assert!(
            open.promote(&limits, all[14], ConnectionClass::Device, None)
                && open.promote(&limits, all[15], ConnectionClass::Device, None)
        );
        assert_eq!(enter(&mut open), None, "everybody is known");
        open.leave(all[0]);
        assert_eq!((open.known, enter(&mut open).is_some()), (13, true));
    }

    #[test]
    fn a_caller_has_a_share_of_the_connections() {
        let (limits, mut open) = (limits(80, 80), OpenConnections::default());
        let (one, other) = (Actor::Other("one".to_owned()), Actor::Other("other".to_owned()));
        let all: Vec<u64> =
            (0..80).map(|_| open.enter(&limits, network(1), CancellationToken::new()).unwrap()).collect();
        let known = |open: &mut OpenConnections, number, caller: &Actor| {
            open.promote(&limits, number, ConnectionClass::Known, Some(caller.clone()))
        };
        assert_eq!(all[..40].iter().filter(|number| known(&mut open, **number, &one)).count(), 20);
        assert!(known(&mut open, all[40], &other), "others get in");
        assert!(!known(&mut open, all[41], &one));
        open.leave(all[0]);
        assert!(known(&mut open, all[41], &one));
        // A connection that turns out to be a device's no longer counts.
        assert!(open.promote(&limits, all[41], ConnectionClass::Device, Some(one.clone())));
        assert!(known(&mut open, all[42], &one));
        for number in all {
            open.leave(number);
        }
        assert_eq!((open.known, open.by_caller.len()), (0, 0));
    }
}
