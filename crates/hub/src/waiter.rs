//! Long polls: subscribe, look, wait until something may have changed, and look again.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    Handle, Principal, Result,
    bus::{Topic, TopicWatch},
    identity::{AccessGuard, StreamRight},
};

/// Waits on behalf of a caller. Created before the first look, so that no change is missed in between:
///
/// ```ignore
/// let mut waiter = Waiter::new(self, by, Topic::Run(run), Some(wait));
/// loop {
///     let found = self.look(waiter.principal(), run).await?;
///     if found.is_settled() || !waiter.changed().await? {
///         return Ok(found);
///     }
/// }
/// ```
#[derive(Debug)]
pub(crate) struct Waiter {
    hub: Handle,
    watch: TopicWatch,
    guard: AccessGuard,
    deadline: Option<Instant>,
    /// Hints may be lost, so it looks again this often.
    poll_every: Duration,
}

// === impl Waiter ===

impl Waiter {
    /// The longest that a request may wait.
    pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

    /// Waits for the topic: for at most `wait`, or as long as the hub serves.
    pub(crate) fn new(hub: &Handle, by: &Principal, topic: Topic, wait: Option<Duration>) -> Self {
        Self {
            hub: hub.clone(),
            watch: hub.bus().watch(topic),
            guard: AccessGuard::new(hub, by, StreamRight::Credential),
            deadline: wait.map(|wait| Instant::now() + wait),
            poll_every: hub.options().poll_every,
        }
    }

    /// Fails as soon as the caller loses this right.
    pub(crate) fn with_right(self, right: StreamRight) -> Self {
        Self { guard: self.guard.with_right(right), ..self }
    }

    pub(crate) fn poll_every(self, poll_every: Duration) -> Self {
        Self { poll_every, ..self }
    }

    /// Whether it is worth looking again: `false` once the time is up or the hub drains, which leaves the last look as the answer.
    /// Fails when the caller loses access. Safe to drop and call again.
    pub(crate) async fn changed(&mut self) -> Result<bool> {
        let now = Instant::now();
        if self.hub.is_draining() || self.deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(false);
        }
        let look_again = now + self.poll_every;
        tokio::select! {
            () = self.watch.moved() => {}
            () = tokio::time::sleep_until(self.deadline.map_or(look_again, |at| at.min(look_again))) => {}
            () = self.hub.drained() => return Ok(false),
            error = self.guard.broken() => return Err(error),
        }
        self.check_access().await?;
        Ok(true)
    }

    /// The caller with their current rights.
    pub(crate) const fn principal(&self) -> &Principal {
        self.guard.principal()
    }

    /// Fails if the caller has lost access. A stream calls it before it shows anything.
    pub(crate) async fn check_access(&mut self) -> Result<()> {
        self.guard.check_if_due().await
    }
}

#[cfg(test)]
mod tests {
    use std::{net::SocketAddr, sync::Arc};

    use attache_protocol::env::Env;
    use attache_store::memory::MemoryStore;
    use tokio::time::timeout;

    use super::*;
    use crate::{Hub, Options};

    const LONG: Duration = Duration::from_secs(20);

    /// A hub that doesn't poll, its owner, and its data.
    async fn hub() -> (Handle, Principal, tempfile::TempDir) {
        let data = tempfile::tempdir().unwrap();
        let mut options = Options::new(data.path(), SocketAddr::from(([127, 0, 0, 1], 7800)));
        options.poll_every = LONG * 10;
        options.disk_reserve = Some(0);
        let hub = Hub::start(options, Arc::new(MemoryStore::new()), Env::system()).await.unwrap();
        let key = std::fs::read_to_string(data.path().join("admin.key")).unwrap();
        let owner = hub.authenticate_key(key.trim()).await.unwrap();
        (hub, owner, data)
    }

    #[tokio::test]
    async fn a_change_between_two_looks_is_not_missed() {
        let (hub, owner, _data) = hub().await;
        let topic = Topic::Tenant(owner.tenant);
        let mut waiter = Waiter::new(&hub, &owner, topic, Some(LONG));
        hub.bus().wake([topic]);
        assert_eq!(timeout(LONG / 2, waiter.changed()).await.unwrap(), Ok(true));
        // The hint is used up; the next one wakes a waiter that waits already.
        let waiting = tokio::spawn(async move { waiter.changed().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        hub.bus().wake([topic]);
        assert_eq!(timeout(LONG / 2, waiting).await.unwrap().unwrap(), Ok(true));
    }

    #[tokio::test]
    async fn at_the_deadline_it_looks_once_more_and_then_gives_up() {
        let (hub, owner, _data) = hub().await;
        let topic = Topic::Tenant(owner.tenant);
        let mut waiter = Waiter::new(&hub, &owner, topic, Some(Duration::from_millis(30)));
        assert_eq!(timeout(LONG, waiter.changed()).await.unwrap(), Ok(true));
        assert_eq!(waiter.changed().await, Ok(false));
        let mut waiter = Waiter::new(&hub, &owner, topic, Some(Duration::ZERO));
        assert_eq!(waiter.changed().await, Ok(false));
    }

    #[tokio::test]
    async fn without_hints_it_looks_again_at_intervals() {
        let (hub, owner, _data) = hub().await;
        let waiter = Waiter::new(&hub, &owner, Topic::Tenant(owner.tenant), None);
        let mut waiter = waiter.poll_every(Duration::from_millis(5));
        for _ in 0..3 {
            assert_eq!(timeout(LONG, waiter.changed()).await.unwrap(), Ok(true));
        }
    }

    #[tokio::test]
    async fn a_draining_hub_ends_the_wait() {
        let (hub, owner, _data) = hub().await;
        let mut waiter = Waiter::new(&hub, &owner, Topic::Tenant(owner.tenant), None);
        let waiting = tokio::spawn(async move { (waiter.changed().await, waiter) });
        tokio::task::yield_now().await;
        hub.drain();
        let (first, mut waiter) = timeout(LONG, waiting).await.unwrap().unwrap();
        assert_eq!((first, waiter.changed().await), (Ok(false), Ok(false)));
    }
}
