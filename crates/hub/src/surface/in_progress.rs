//! Limits the requests in progress per caller. A request counts until the connection has taken its whole response, so a
//! caller that doesn't read can't fill the hub's memory. Streams have their own limit and don't count.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use attache_protocol::{Actor, Code};
use tokio::{sync::Semaphore, time::timeout};

use crate::{
    Error, Options, Principal, PrincipalKind, Result, connection_slot::ConnectionId, identity::limiter::ClientNetwork,
};

/// A request that takes longer waits for something to happen. From then on it counts like a stream.
pub(crate) const WAIT_AFTER: Duration = Duration::from_millis(500);
/// A request waits this part of the response timeout for its turn.
const QUEUE_PART: u32 = 3;
/// How many requests of one caller wait for their turn. More are refused at once.
const MAX_QUEUED: usize = 1024;
/// Of callers without a credential, per network.
const MAX_ANONYMOUS_WAITS: usize = 64;
/// What people and devices need before they have a credential. Each response is small, or in memory anyway.
const ENTRANCES: [&str; 7] = [
    "/healthz",
    "/readyz",
    "/login",
    "/login/passkey",
    "/api/v1/agent-runtimes/runtime/attach-via-pairing",
    "/api/v1/agent-runtimes/runtime/pairing-requests",
    "/api/v1/agent-runtimes/runtime/pairing-requests/poll",
];
/// The parts of the sign-in page.
const ASSETS: &str = "/assets/";
/// Idle callers are forgotten when this many are known, or twice as many as were active the last time.
const SWEEP_SIZE: usize = 1024;

/// The requests in progress of all callers.
#[derive(Debug)]
pub(crate) struct RequestsInProgress {
    max: usize,
    max_waits: usize,
    queue_timeout: Duration,
    callers: Mutex<CallersInProgress>,
}

#[derive(Debug)]
struct CallersInProgress {
    known: HashMap<RequestCaller, Arc<CallerRequests>>,
    sweep_at: usize,
}

/// Whose requests are counted together: all keys of a person, or everyone without a credential in one network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RequestCaller {
    Principal(Actor),
    Network(ClientNetwork),
    /// Health checks, sign-in and pairing, per connection: nobody is kept from them by others at the same address.
    Entrance(ConnectionId, ClientNetwork),
}

#[derive(Debug)]
struct CallerRequests {
    max: usize,
    max_waits: usize,
    queue_timeout: Duration,
    free: Semaphore,
    waits: AtomicUsize,
    queued: AtomicUsize,
}

/// One request in progress. Dropping it makes room for the next.
#[derive(Debug)]
pub(crate) struct RequestSlot {
    caller: Arc<CallerRequests>,
    is_wait: bool,
}

/// One request that waits for its turn.
struct QueuedRequest<'a>(&'a AtomicUsize);

// === impl RequestsInProgress ===

impl RequestsInProgress {
    pub(crate) fn new(options: &Options) -> Self {
        let callers = CallersInProgress { known: HashMap::new(), sweep_at: SWEEP_SIZE };
        Self {
            max: options.max_requests,
            max_waits: options.max_streams,
            queue_timeout: options.response_timeout / QUEUE_PART,
            callers: Mutex::new(callers),
        }
    }

    /// A slot for one more request. If the caller has none left, it waits a while for one.
    pub(crate) async fn begin(&self, caller: RequestCaller) -> Result<RequestSlot> {
        self.of(caller).begin().await
    }

    fn of(&self, caller: RequestCaller) -> Arc<CallerRequests> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(requests) = callers.known.get(&caller) {
            return requests.clone();
        }
        if callers.known.len() >= callers.sweep_at {
            callers.known.retain(|_, requests| Arc::strong_count(requests) > 1);
            callers.sweep_at = SWEEP_SIZE.max(2 * callers.known.len());
        }
        let max_waits = match caller {
            RequestCaller::Principal(_) => self.max_waits,
            RequestCaller::Network(_) | RequestCaller::Entrance(..) => self.max_waits.min(MAX_ANONYMOUS_WAITS),
        };
        let requests = Arc::new(CallerRequests {
            max: self.max,
            max_waits,
            queue_timeout: self.queue_timeout,
            free: Semaphore::new(self.max),
            waits: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        });
        callers.known.insert(caller, requests.clone());
        requests
    }
}

// === impl RequestCaller ===

impl RequestCaller {
    pub(crate) fn new(known: Option<&Principal>, from: IpAddr) -> Self {
        match known {
            Some(by) if !matches!(by.who, PrincipalKind::Anonymous { .. }) => Self::Principal(by.holder()),
            Some(_) | None => Self::Network(ClientNetwork::from(from)),
        }
    }

    /// The same caller, on its way in. Only small responses may count like this: the limit per network doesn't hold.
    pub(crate) fn enters(self, path: &str, connection: ConnectionId) -> Self {
        let is_entrance = ENTRANCES.contains(&path) || path.starts_with(ASSETS);
        match self {
            Self::Network(network) if is_entrance => Self::Entrance(connection, network),
            other => other,
        }
    }
}

// === impl CallerRequests ===

impl CallerRequests {
    async fn begin(self: Arc<Self>) -> Result<RequestSlot> {
        let permit = match self.free.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.wait().await?,
        };
        permit.forget();
        Ok(RequestSlot { caller: self.clone(), is_wait: false })
    }

    async fn wait(&self) -> Result<tokio::sync::SemaphorePermit<'_>> {
        let queued = self.queued.fetch_add(1, Ordering::Relaxed);
        let _queued = QueuedRequest(&self.queued);
        if queued >= MAX_QUEUED {
            return Err(self.refuse());
        }
        match timeout(self.queue_timeout, self.free.acquire()).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(self.refuse()),
        }
    }

    fn refuse(&self) -> Error {
        let message = format!("You have {} requests in progress, which is the limit.", self.max);
        Error::new(Code::Overloaded, message).hint("Read the responses to your other requests first, then try again.")
    }
}

// === impl RequestSlot ===

impl RequestSlot {
    /// The request waits for something to happen. As long as the caller doesn't have too many of those, it makes room
    /// for others.
    pub(crate) fn begin_wait(&mut self) {
        let most = self.caller.max_waits;
        let more = |waits: usize| (waits < most).then_some(waits + 1);
        if !self.is_wait && self.caller.waits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok() {
            self.is_wait = true;
            self.caller.free.add_permits(1);
        }
    }

    /// Whether the caller uses more than half of what it may.
    pub(crate) fn is_crowded(&self) -> bool {
        self.caller.free.available_permits() < self.caller.max / 2
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        if self.is_wait {
            self.caller.waits.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.caller.free.add_permits(1);
        }
    }
}

// === impl QueuedRequest ===

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max: usize, max_waits: usize) -> RequestsInProgress {
        let mut options = Options::new("", "127.0.0.1:0".parse().unwrap());
        (options.max_requests, options.max_streams) = (max, max_waits);
        options.response_timeout = Duration::from_millis(60);
        RequestsInProgress::new(&options)
    }

    fn network(last: u8) -> RequestCaller {
        RequestCaller::new(None, IpAddr::from([192, 0, 2, last]))
    }

    #[tokio::test]
    async fn a_caller_without_a_free_slot_waits_and_is_then_refused() {
        let limits = limits(2, 1);
        let first = limits.begin(network(1)).await.unwrap();
        let _second = limits.begin(network(1)).await.unwrap();
        assert_eq!(limits.begin(network(1)).await.unwrap_err().code, Code::Overloaded);
        assert!(limits.begin(network(2)).await.is_ok(), "others are not affected");
        let (third, ()) = tokio::join!(limits.begin(network(1)), async { drop(first) });
        assert!(third.is_ok(), "it gets the slot that became free");
    }

    #[tokio::test]
    async fn waits_make_room_up_to_their_own_limit() {
        let limits = limits(1, 1);
        let mut first = limits.begin(network(1)).await.unwrap();
        first.begin_wait();
        let mut second = limits.begin(network(1)).await.unwrap();
        second.begin_wait();
        assert!(limits.begin(network(1)).await.is_err(), "there is room for one wait");
        drop(first);
        second.begin_wait();
        assert!(limits.begin(network(1)).await.is_ok());
    }

    #[tokio::test]
    async fn idle_callers_are_forgotten() {
        let limits = limits(1, 1);
        let _busy = limits.begin(network(1)).await.unwrap();
        for number in 0..10 * SWEEP_SIZE {
            let [.., high, low] = number.to_be_bytes();
            let _ = limits.begin(RequestCaller::new(None, IpAddr::from([198, 51, high, low]))).await.unwrap();
        }
        let callers = limits.callers.lock().unwrap();
        assert!(callers.known.len() <= SWEEP_SIZE && callers.known.contains_key(&network(1)));
    }
}
