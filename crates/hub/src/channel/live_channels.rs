//! The channels connected to this hub, when they were last heard, and the tools of their engines.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_protocol::{Actor, ChannelId, Json};
use attache_store::record::channel::ChannelRecord;
use tokio::{sync::Semaphore, time::Instant};

use super::{response::FrameRefusal, tools::ChannelTools};
use crate::{Error, Handle};

const GATES: usize = 32;
/// Engines whose compiled tools are cached. The oldest are evicted and compiled again when needed.
const MAX_COMPILED: usize = 256;
/// How many schemas are compiled or checked concurrently.
const SCHEMAS_AT_ONCE: usize = 2;
/// HTTP callers whose registered tools are remembered. The oldest are evicted and must register again.
const MAX_REGISTERED: usize = 10_000;
/// How long the frames of an ended stream can be read again.
const KEEP_FINISHED: Duration = Duration::from_secs(600);
/// How many channels are reported to the store at once.
const BATCH: usize = 512;

#[derive(Debug)]
pub(crate) struct LiveChannels {
    /// The connection that owns a channel. A newer one takes it over.
    connections: Mutex<HashMap<ChannelId, u64>>,
    numbers: AtomicU64,
    /// Serializes taking over and closing a channel.
    gates: [tokio::sync::Mutex<()>; GATES],
    heard: Mutex<HashSet<ChannelId>>,
    compiled: Mutex<VecDeque<(ChannelId, Arc<ChannelTools>)>>,
    schemas: Semaphore,
    registered: Mutex<VecDeque<(Actor, ChannelId)>>,
    finished: Mutex<VecDeque<(Instant, ChannelId)>>,
}

// === impl LiveChannels ===

impl LiveChannels {
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) async fn gate(&self, channel: ChannelId) -> tokio::sync::MutexGuard<'_, ()> {
        let index = usize::from(channel.uuid().as_bytes()[15]) % GATES;
        self.gates[index].lock().await
    }

    /// Call with the channel's gate held.
    pub(super) fn connect(&self, channel: ChannelId, number: u64) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).insert(channel, number);
    }

    /// Call with the channel's gate held. Returns whether this connection still owned it.
    pub(super) fn disconnect(&self, channel: ChannelId, number: u64) -> bool {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = connections.get(&channel) == Some(&number);
        if is_own {
            connections.remove(&channel);
        }
        is_own
    }

    pub(super) fn mark_seen(&self, channel: ChannelId) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(channel);
    }

    /// Parses and compiles a peer's tools.
    pub(super) async fn compile(&self, tools: Json) -> Result<Arc<ChannelTools>, FrameRefusal> {
        // Most peers have no tools.
        if tools.get() == "[]" {
            return Ok(Arc::default());
        }
        self.off_thread(move || ChannelTools::compile(&tools).map(Arc::new)).await?
    }

    /// Runs work on third-party schemas and patterns with limited concurrency, off the threads that serve requests.
    pub(super) async fn off_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FrameRefusal> {
        let _turn = self.schemas.acquire().await.map_err(|error| Error::internal(&error))?;
        tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(&error).into())
    }

    /// The engine's compiled tools. They compiled when they were registered, so they compile again.
    pub(super) async fn tools(&self, channel: &ChannelRecord) -> Arc<ChannelTools> {
        if let Some(tools) = self.known_tools(channel.id) {
            return tools;
        }
        let tools = match self.compile(channel.tools.clone()).await {
            Ok(tools) => tools,
            Err(refusal) => {
                // Registered under wider limits than today's: the engine gets no calls until it registers again.
                tracing::warn!(channel.id = %channel.id, reason = %refusal.message, "an engine's tools are no longer usable");
                Arc::default()
            }
        };
        self.keep_tools(channel.id, tools.clone());
        tools
    }

    fn known_tools(&self, channel: ChannelId) -> Option<Arc<ChannelTools>> {
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.iter().find(|(known, _)| *known == channel).map(|(_, tools)| tools.clone())
    }

    pub(super) fn keep_tools(&self, channel: ChannelId, tools: Arc<ChannelTools>) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.iter().all(|(known, _)| *known != channel) {
            if compiled.len() >= MAX_COMPILED {
                compiled.pop_front();
            }
            compiled.push_back((channel, tools));
        }
    }

    /// Over HTTP, a caller registers once and calls later.
    pub(crate) fn register(&self, actor: Actor, channel: ChannelId) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|(known, _)| *known != actor);
        if registered.len() >= MAX_REGISTERED {
            registered.pop_front();
        }
        registered.push_back((actor, channel));
    }

    pub(crate) fn registered(&self, actor: &Actor) -> Option<ChannelId> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.iter().find(|(known, _)| known == actor).map(|(_, channel)| *channel)
    }

    /// The channel's only run was streamed to its end. Its frames are removed later.
    pub(crate) fn finish(&self, channel: ChannelId) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).push_back((Instant::now(), channel));
    }

    fn forgettable(&self) -> Vec<ChannelId> {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let due = finished.iter().take_while(|(at, _)| at.elapsed() >= KEEP_FINISHED).count();
        finished.drain(..due).map(|(_, channel)| channel).collect()
    }

    fn take_seen(&self) -> Vec<ChannelId> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).drain().collect()
    }
}

impl Default for LiveChannels {
    fn default() -> Self {
        Self {
            connections: Mutex::default(),
            numbers: AtomicU64::new(1),
            gates: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            heard: Mutex::default(),
            compiled: Mutex::default(),
            schemas: Semaphore::new(SCHEMAS_AT_ONCE),
            registered: Mutex::default(),
            finished: Mutex::default(),
        }
    }
}

/// Reports to the store, in batches, which channels were heard. Runs until the hub drains.
pub(crate) async fn store_seen_channels(hub: Handle) {
    let lease = hub.options().heartbeat_timeout;
    let every = (lease / 8).clamp(Duration::from_millis(10), Duration::from_secs(5));
    loop {
        tokio::select! {
            () = hub.drained() => return,
            () = tokio::time::sleep(every) => {}
        }
        for batch in hub.live_channels().take_seen().chunks(BATCH) {
            if let Err(error) = hub.store().mark_channels_seen(batch.to_vec(), lease, hub.now()).await {
                tracing::debug!(%error, "could not store which channels were heard");
            }
        }
        for channel in hub.live_channels().forgettable() {
            if let Err(error) = hub.store().acknowledge(channel, i64::MAX).await {
                tracing::debug!(channel.id = %channel, %error, "could not remove frames");
            }
        }
    }
}
