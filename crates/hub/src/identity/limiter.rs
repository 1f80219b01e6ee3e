//! Counts attempts per minute and address, agent, name or principal, and rejects excess attempts. Each of several nodes
//! counts its own and allows its share, so that all of them together allow what one would, without a write per attempt.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::Code;
use tokio::time::Instant;

use crate::{Error, Result, nodes::NodeCount};

const WINDOW: Duration = Duration::from_secs(60);
/// An attacker with more than twice as many addresses evicts old entries instead of growing memory.
const CAPACITY: usize = 8_192;

/// So many attempts per minute at all nodes, starting with the first.
#[derive(Debug)]
pub(crate) struct RateLimiter<K> {
    policy: &'static str,
    per_minute: u32,
    nodes: NodeCount,
    windows: Mutex<Generations<K>>,
}

/// What is left of the minute, for the `RateLimit` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    pub policy: &'static str,
    pub per_minute: u32,
    pub remaining: u32,
    /// Seconds until the window resets, rounded up.
    pub reset: u64,
}

/// One attempt, counted before its outcome is known. It stays counted unless returned.
#[must_use = "a successful attempt must be given back"]
#[derive(Debug)]
pub(crate) struct CountedAttempt<'a, K: Eq + Hash + Clone> {
    limiter: &'a RateLimiter<K>,
    key: K,
}

/// An IPv6 client usually controls its entire /64, so that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientNetwork(IpAddr);

#[derive(Debug, Clone, Copy)]
struct RateWindow {
    began: Instant,
    count: u32,
}

/// Two maps: when the younger is full it becomes the older, and the old one is dropped. Entries in use stay in the
/// younger.
#[derive(Debug)]
struct Generations<K> {
    young: HashMap<K, RateWindow>,
    old: HashMap<K, RateWindow>,
}

// === impl RateLimiter ===

impl<K: Eq + Hash + Clone> RateLimiter<K> {
    /// `policy` is the limit's name in the `RateLimit` headers.
    pub(crate) fn new(policy: &'static str, per_minute: u32) -> Self {
        let generations = Generations { young: HashMap::new(), old: HashMap::new() };
        Self { policy, per_minute, nodes: NodeCount::default(), windows: Mutex::new(generations) }
    }

    /// The same, where these nodes each allow a part of it: the same part, because a balancer spreads callers evenly.
    #[must_use]
    pub(crate) fn shared_by(self, nodes: &NodeCount) -> Self {
        Self { nodes: nodes.clone(), ..self }
    }

    /// What this node allows: at least one attempt, unless the limit is zero.
    fn share(&self) -> u32 {
        self.per_minute.div_ceil(self.nodes.get().get())
    }

    /// Counts an attempt before its outcome is known, unless the limit is reached. This bounds concurrent attempts too.
    pub(crate) fn reserve(&self, key: impl Into<K>) -> Result<CountedAttempt<'_, K>> {
        let (key, now) = (key.into(), Instant::now());
        self.take_at(key.clone(), now)?;
        Ok(CountedAttempt { limiter: self, key })
    }

    /// Counts one attempt, unless the limit is reached.
    pub(crate) fn take(&self, key: impl Into<K>) -> Result<RateLimitStatus> {
        self.take_at(key.into(), Instant::now())
    }

    fn take_at(&self, key: K, now: Instant) -> Result<RateLimitStatus> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(key, now);
        if window.count >= self.share() {
            return Err(self.refuse(*window, now));
        }
        window.count += 1;
        Ok(self.left(*window, now))
    }

    fn left(&self, window: RateWindow, now: Instant) -> RateLimitStatus {
        let rest = WINDOW.saturating_sub(now.duration_since(window.began));
        RateLimitStatus {
            policy: self.policy,
            per_minute: self.share(),
            remaining: self.share().saturating_sub(window.count),
            reset: rest.as_secs() + u64::from(rest.subsec_nanos() > 0),
        }
    }

    fn refuse(&self, window: RateWindow, now: Instant) -> Error {
        let left = self.left(window, now);
        let message = format!("Too many attempts. The limit is {} per minute.", self.share());
        let hint = format!("Wait {} seconds, then try again.", left.reset);
        Error::new(Code::TooManyRequests, message).hint(hint).limited(left)
    }
}

// === impl CountedAttempt ===

impl<K: Eq + Hash + Clone> CountedAttempt<'_, K> {
    /// The attempt succeeded or doesn't count.
    pub(crate) fn give_back(self) {
        let mut windows = self.limiter.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(self.key, Instant::now());
        window.count = window.count.saturating_sub(1);
    }
}

// === impl Generations ===

impl<K: Eq + Hash + Clone> Generations<K> {
    /// The key's window, if it is still open.
    fn current(&self, key: &K, now: Instant) -> Option<&RateWindow> {
        let window = self.young.get(key).or_else(|| self.old.get(key));
        window.filter(|window| now.duration_since(window.began) < WINDOW)
    }

    /// The key's window, or a new one.
    fn entry(&mut self, key: K, now: Instant) -> &mut RateWindow {
        let fresh = RateWindow { began: now, count: 0 };
        let kept = self.current(&key, now).copied().unwrap_or(fresh);
        if self.young.len() >= CAPACITY && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let window = self.young.entry(key).or_insert(fresh);
        *window = kept;
        window
    }
}

// === impl ClientNetwork ===

impl fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                Self(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_applies_per_minute() {
        let limiter: RateLimiter<u32> = RateLimiter::new("test", 2);
        let left = |remaining, reset| RateLimitStatus { policy: "test", per_minute: 2, remaining, reset };
        let began = Instant::now();
        let later = |millis| began + Duration::from_millis(millis);
        assert_eq!(limiter.take_at(1, began), Ok(left(1, 60)));
        assert_eq!(limiter.take_at(1, later(10_500)), Ok(left(0, 50)));
        let refused = limiter.take_at(1, later(10_500)).unwrap_err();
        assert_eq!((refused.code, refused.limited.as_deref().copied()), (Code::TooManyRequests, Some(left(0, 50))));
        assert_eq!(limiter.take_at(2, later(0)), Ok(left(1, 60)));
        assert!(limiter.take_at(1, later(59_999)).is_err());
        assert_eq!(limiter.take_at(1, later(60_000)), Ok(left(1, 60)));
    }

    #[test]
    fn returned_attempts_do_not_count() {
        let limiter: RateLimiter<u32> = RateLimiter::new("test", 2);
        let (first, second) = (limiter.reserve(1_u32).unwrap(), limiter.reserve(1_u32).unwrap());
        assert!(limiter.reserve(1_u32).is_err(), "two are in progress");
        first.give_back();
        drop(second);
        drop(limiter.reserve(1_u32).unwrap());
        assert!(limiter.reserve(1_u32).is_err());
    }

    #[test]
    fn memory_is_bounded_and_active_keys_are_kept() {
        let limiter: RateLimiter<usize> = RateLimiter::new("test", 3 * u32::try_from(CAPACITY).unwrap());
        for key in 1..10 * CAPACITY {
            let _ = limiter.take(key);
            let last = limiter.take(0_usize);
            if key == 3 * CAPACITY + 1 {
                assert!(last.is_err());
            }
        }
        let windows = limiter.windows.lock().unwrap();
        assert!(windows.young.len() + windows.old.len() <= 2 * CAPACITY);
    }

    #[test]
    fn addresses_are_counted_by_network() {
        let network = |text: &str| ClientNetwork::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), network("2001:db8:1:2::"));
        assert_ne!(network("2001:db8:1:2::"), network("2001:db8:1:3::"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
    }
}
