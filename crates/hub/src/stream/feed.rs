//! One reader for everybody who watches the same run: a batch of events costs one read of the store, however many watch.
//!
//! A watcher reads the past by itself and joins the feed when it has caught up. A feed begins with its first watcher and ends
//! with its last one. A watcher that falls behind the feed leaves it and reads by itself again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attache_protocol::{RunId, TenantId, wire::event::Event};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::{Handle, bus::Topic, control::check};

/// How many batches a watcher may be behind before it has to read by itself.
const CAPACITY: usize = 32;

/// The feeds that somebody watches.
#[derive(Debug, Default)]
pub(crate) struct RunFeeds(Mutex<HashMap<RunId, Arc<RunFeed>>>);

/// What the watchers of one run share.
#[derive(Debug)]
struct RunFeed {
    sender: broadcast::Sender<EventBatch>,
    state: Mutex<RunFeedState>,
    /// Told when nobody watches any more.
    abandoned: CancellationToken,
}

#[derive(Debug)]
struct RunFeedState {
    /// Events up to this seq were sent, or are older than the feed.
    reached: i64,
    watchers: usize,
}

/// Events in order, without gaps.
#[derive(Debug, Clone)]
pub(crate) struct EventBatch {
    pub(crate) events: Arc<[Event]>,
    /// Whether the last of them is the run's last.
    pub(crate) ended: bool,
}

/// A watcher's place in a feed.
#[derive(Debug)]
pub(crate) struct RunFeedReader {
    hub: Handle,
    run: RunId,
    feed: Arc<RunFeed>,
    receiver: broadcast::Receiver<EventBatch>,
    /// What the watcher must have read by itself before the feed's batches follow on without a gap.
    pub(crate) from: i64,
}

// === impl RunFeeds ===

impl RunFeeds {
    /// Joins the run's feed, which begins after `reached` if nobody watches yet.
    pub(crate) fn join(&self, hub: &Handle, tenant: TenantId, run: RunId, reached: i64) -> RunFeedReader {
        let mut feeds = lock(&self.0);
        let feed = feeds.entry(run).or_insert_with(|| {
            let feed = Arc::new(RunFeed {
                sender: broadcast::Sender::new(CAPACITY),
                state: Mutex::new(RunFeedState { reached, watchers: 0 }),
                abandoned: CancellationToken::new(),
            });
            hub.tasks().spawn(read(hub.clone(), tenant, run, feed.clone()));
            feed
        });
        let mut state = lock(&feed.state);
        state.watchers += 1;
        let (from, receiver) = (state.reached, feed.sender.subscribe());
        drop(state);
        RunFeedReader { hub: hub.clone(), run, feed: feed.clone(), receiver, from }
    }

    /// From now on the next watcher begins another feed.
    fn remove(&self, run: RunId, feed: &Arc<RunFeed>) {
        let mut feeds = lock(&self.0);
        if feeds.get(&run).is_some_and(|known| Arc::ptr_eq(known, feed)) {
            feeds.remove(&run);
        }
    }

    fn leave(&self, run: RunId, feed: &Arc<RunFeed>) {
        let mut feeds = lock(&self.0);
        let mut state = lock(&feed.state);
        state.watchers -= 1;
        if state.watchers == 0 {
            feed.abandoned.cancel();
            if feeds.get(&run).is_some_and(|known| Arc::ptr_eq(known, feed)) {
                feeds.remove(&run);
            }
        }
    }
}

/// Nothing in here is left half done by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads for everybody until the run ends, nobody watches, or the hub drains.
async fn read(hub: Handle, tenant: TenantId, run: RunId, feed: Arc<RunFeed>) {
    hub.metrics().feeds.add(1);
    let mut watch = hub.bus().watch(Topic::Run(run));
    let mut after = lock(&feed.state).reached;
    loop {
        match hub.run_page(tenant, run, after, check::MAX_PAGE).await {
            // Some events are gone: each watcher is told by its own reading what it misses.
            Ok(page) if page.is_repaired => break,
            Ok(page) => {
                after = page.events.last().map_or(after, |event| event.seq);
                let more = !page.events.is_empty();
                if more || page.ended {
                    feed.publish(after, EventBatch { events: page.events.into(), ended: page.ended });
                }
                if page.ended {
                    break;
                }
                if more {
                    continue;
                }
            }
            Err(error) => tracing::debug!(run.id = %run, %error, "a feed could not be read"),
        }
        tokio::select! {
            () = watch.moved() => {}
            () = tokio::time::sleep(hub.options().poll_every) => {}
            () = feed.abandoned.cancelled() => break,
            () = hub.drained() => break,
        }
    }
    hub.feeds().remove(run, &feed);
    feed.close();
    hub.metrics().feeds.take(1);
}

// === impl RunFeed ===

impl RunFeed {
    /// Under the lock, so that who joins knows exactly which batches it will get.
    fn publish(&self, reached: i64, batch: EventBatch) {
        let mut state = lock(&self.state);
        state.reached = reached;
        let _ = self.sender.send(batch);
    }

    /// Watchers that wait learn that nothing more comes: an empty batch that does not end the run.
    fn close(&self) {
        let _ = self.sender.send(EventBatch { events: Arc::new([]), ended: false });
    }
}

// === impl RunFeedReader ===

impl RunFeedReader {
    /// The next batch; `None` when the watcher has to read by itself. Safe to drop and call again.
    pub(crate) async fn next(&mut self) -> Option<EventBatch> {
        match self.receiver.recv().await {
            Ok(batch) if batch.events.is_empty() && !batch.ended => None,
            Ok(batch) => Some(batch),
            Err(RecvError::Lagged(_) | RecvError::Closed) => None,
        }
    }
}

impl Drop for RunFeedReader {
    fn drop(&mut self) {
        self.hub.feeds().leave(self.run, &self.feed);
    }
}
