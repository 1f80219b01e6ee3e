//! One reader for all watchers of a run: a batch of events costs one store read, however many watch.
//!
//! A watcher reads past events on its own and joins the feed once it has caught up. A feed starts with its first
//! watcher and ends with its last. A watcher that falls behind leaves the feed and reads on its own again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attache_protocol::{RunId, TenantId, wire::event::Event};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use crate::{Handle, bus::Topic, check};

/// How many batches a watcher may fall behind before it must read on its own.
const CAPACITY: usize = 32;

/// The active feeds.
#[derive(Debug, Default)]
pub(crate) struct RunFeeds(Mutex<HashMap<RunId, Arc<RunFeed>>>);

/// What the watchers of one run share.
#[derive(Debug)]
struct RunFeed {
    sender: broadcast::Sender<EventBatch>,
    state: Mutex<RunFeedState>,
    /// Cancelled when the last watcher leaves.
    abandoned: CancellationToken,
}

#[derive(Debug)]
struct RunFeedState {
    /// Events up to this seq were sent, or predate the feed.
    reached: i64,
    watchers: usize,
}

/// Consecutive events.
#[derive(Debug, Clone)]
pub(crate) struct EventBatch {
    pub(crate) events: Arc<[Event]>,
    /// Whether the last of them ends the run.
    pub(crate) ended: bool,
}

/// A watcher's position in a feed.
#[derive(Debug)]
pub(crate) struct RunFeedReader {
    hub: Handle,
    run: RunId,
    feed: Arc<RunFeed>,
    receiver: broadcast::Receiver<EventBatch>,
    /// What the watcher must read on its own before the feed's batches follow without a gap.
    pub(crate) from: i64,
}

// === impl RunFeeds ===

impl RunFeeds {
    /// Joins the run's feed. A new feed starts after `reached`.
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

    /// The next watcher starts another feed.
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

/// A panic leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads for all watchers until the run ends, no one watches, or the hub drains.
async fn read(hub: Handle, tenant: TenantId, run: RunId, feed: Arc<RunFeed>) {
    hub.metrics().feeds.add(1);
    let mut watch = hub.bus().watch(Topic::Run(run));
    let mut after = lock(&feed.state).reached;
    loop {
        match hub.run_page(tenant, run, after, check::MAX_PAGE).await {
            // Some events were removed: each watcher reads on its own to learn what it misses.
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
    /// Under the lock, so that a joining watcher knows exactly which batches it will get.
    fn publish(&self, reached: i64, batch: EventBatch) {
        let mut state = lock(&self.state);
        state.reached = reached;
        let _ = self.sender.send(batch);
    }

    /// Tells waiting watchers that no more batches follow: an empty batch that doesn't end the run.
    fn close(&self) {
        let _ = self.sender.send(EventBatch { events: Arc::new([]), ended: false });
    }
}

// === impl RunFeedReader ===

impl RunFeedReader {
    /// The next batch. `None` if the watcher must read on its own. Safe to drop and call again.
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
