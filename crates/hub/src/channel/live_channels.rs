//! The channels connected to this hub, when they last sent something, and the tools of their engines.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_protocol::{Actor, ChannelId, Json};
use attache_store::record::{
    channel::{ChannelConnection, ChannelRecord},
    shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};
use tokio::{sync::Semaphore, time::Instant};

use super::{response::FrameRefusal, tools::ChannelTools};
use crate::{Error, Handle, Principal, error::about};

const GATES: usize = 32;
/// Engines whose compiled tools are cached, and the memory for all of them. The least recently used are evicted and
/// compiled again when needed.
const MAX_COMPILED: usize = 256;
const MAX_COMPILED_BYTES: usize = 64 << 20;
/// How many schemas are compiled or checked concurrently.
const SCHEMAS_AT_ONCE: usize = 2;
/// HTTP callers whose registered tools are remembered. The oldest are evicted and must register again.
const MAX_REGISTERED: usize = 10_000;
/// How long nodes remember a registration.
const KEEP_REGISTERED: Duration = Duration::from_secs(24 * 60 * 60);
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
    heard: Mutex<HashMap<ChannelId, ChannelConnection>>,
    compiled: Mutex<VecDeque<(ChannelId, Arc<ChannelTools>)>>,
    schemas: Semaphore,
    registered: Mutex<VecDeque<(Actor, ChannelId)>>,
    finished: Mutex<VecDeque<(Instant, ChannelConnection)>>,
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

    pub(super) fn mark_seen(&self, connection: ChannelConnection) {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).insert(connection.channel, connection);
    }

    /// Whether a peer's tools compile. They are compiled again for the first call, because most are never called.
    pub(super) async fn check_tools(&self, tools: Json) -> Result<(), FrameRefusal> {
        // Most peers have no tools.
        if tools.get() == "[]" {
            return Ok(());
        }
        let _turn = self.schemas.acquire().await.map_err(|error| Error::internal(&error))?;
        let compiled = tokio::task::spawn_blocking(move || ChannelTools::compile(&tools).map(drop)).await;
        compiled.map_err(|error| Error::internal(&error))?
    }

    /// Runs a check with the engine's compiled tools, with limited concurrency, off the threads that serve requests.
    pub(super) async fn with_tools<T: Send + 'static>(
        &self,
        channel: &ChannelRecord,
        check: impl FnOnce(&ChannelTools) -> T + Send + 'static,
    ) -> Result<T, FrameRefusal> {
        let _turn = self.schemas.acquire().await.map_err(|error| Error::internal(&error))?;
        // Looked up now, so that those who wait for their turn hold none.
        let (id, described, known) = (channel.id, channel.tools.clone(), self.known_tools(channel.id));
        let work = move || {
            let tools = known.unwrap_or_else(|| Arc::new(compile_again(id, &described)));
            (check(&tools), tools)
        };
        let (checked, tools) = tokio::task::spawn_blocking(work).await.map_err(|error| Error::internal(&error))?;
        self.keep_tools(id, tools);
        Ok(checked)
    }

    fn known_tools(&self, channel: ChannelId) -> Option<Arc<ChannelTools>> {
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.iter().find(|(known, _)| *known == channel).map(|(_, tools)| tools.clone())
    }

    /// Keeps the tools as the most recently used ones.
    fn keep_tools(&self, channel: ChannelId, tools: Arc<ChannelTools>) {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        compiled.retain(|(known, _)| *known != channel);
        compiled.push_back((channel, tools));
        let mut size: usize = compiled.iter().map(|(_, tools)| tools.size()).sum();
        while size > MAX_COMPILED_BYTES || compiled.len() > MAX_COMPILED {
            let Some((_, evicted)) = compiled.pop_front() else { return };
            size -= evicted.size();
        }
    }

    fn register(&self, actor: Actor, channel: ChannelId) {
        let mut registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.retain(|(known, _)| *known != actor);
        if registered.len() >= MAX_REGISTERED {
            registered.pop_front();
        }
        registered.push_back((actor, channel));
    }

    fn registered(&self, actor: &Actor) -> Option<ChannelId> {
        let registered = self.registered.lock().unwrap_or_else(PoisonError::into_inner);
        registered.iter().find(|(known, _)| known == actor).map(|(_, channel)| *channel)
    }

    /// The channel's only run was streamed to its end. Its frames are removed later.
    pub(crate) fn finish(&self, connection: ChannelConnection) {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).push_back((Instant::now(), connection));
    }

    fn forgettable(&self) -> Vec<ChannelConnection> {
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        let due = finished.iter().take_while(|(at, _)| at.elapsed() >= KEEP_FINISHED).count();
        finished.drain(..due).map(|(_, connection)| connection).collect()
    }

    fn take_seen(&self) -> Vec<ChannelConnection> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).drain().map(|(_, connection)| connection).collect()
    }
}

// === impl Handle ===

impl Handle {
    /// Over HTTP, a caller registers once and calls later, perhaps at another node.
    pub(crate) async fn register_tools(&self, by: &Principal, channel: ChannelId) -> Result<(), Error> {
        if self.local_node().is_none() {
            self.live_channels().register(by.actor(), channel);
            return Ok(());
        }
        let value = SharedValue {
            kind: SharedValueKind::RegisteredTools,
            name: registration_name(by),
            tenant: by.tenant,
            holder: by.actor().to_string(),
            value: channel.to_string().into_bytes(),
            expires_at: self.now().plus(KEEP_REGISTERED),
        };
        self.store().keep_value(value, SharedValueLimit::None, self.now()).await.map_err(about("channel"))?;
        Ok(())
    }

    /// The channel with the tools that the caller registered last.
    pub(crate) async fn registered_tools(&self, by: &Principal) -> Result<Option<ChannelId>, Error> {
        if self.local_node().is_none() {
            return Ok(self.live_channels().registered(&by.actor()));
        }
        let found =
            self.store().shared_value(SharedValueKind::RegisteredTools, &registration_name(by), self.now()).await;
        let found = found.map_err(about("channel"))?;
        Ok(found.and_then(|found| std::str::from_utf8(&found.value).ok()?.parse().ok()))
    }
}

fn registration_name(by: &Principal) -> String {
    format!("{} {}", by.tenant, by.actor())
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

/// The tools compiled when they were registered, so they compile again.
fn compile_again(channel: ChannelId, described: &Json) -> ChannelTools {
    ChannelTools::compile(described).unwrap_or_else(|refusal| {
        // Registered under wider limits than today's: the engine gets no calls until it registers again.
        tracing::warn!(channel.id = %channel, reason = %refusal.message, "an engine's tools are no longer usable");
        ChannelTools::default()
    })
}

/// Reports to the store, in batches, which channels were active. Runs until the hub drains.
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
                tracing::debug!(%error, "could not store which channels were active");
            }
        }
        for connection in hub.live_channels().forgettable() {
            if let Err(error) = hub.store().acknowledge(connection, i64::MAX).await {
                tracing::debug!(channel.id = %connection.channel, %error, "could not remove frames");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::env::Env;

    use super::*;

    fn compiled(patterns: usize) -> Arc<ChannelTools> {
        let tools = (0..patterns).map(|number| {
            format!(r#"{{"name":"t{number}","input_schema":{{"properties":{{"a":{{"pattern":"^a{number}$"}}}}}}}}"#)
        });
        let tools = Json::from_text(format!("[{}]", tools.collect::<Vec<_>>().join(","))).unwrap();
        Arc::new(ChannelTools::compile(&tools).unwrap())
    }

    #[test]
    fn compiled_tools_have_a_memory_budget() {
        let (live, env) = (LiveChannels::default(), Env::seeded(7));
        let (heavy, light) = (compiled(64), compiled(1));
        let used = env.channel_id();
        live.keep_tools(used, light.clone());
        for _ in 0..MAX_COMPILED {
            live.keep_tools(env.channel_id(), heavy.clone());
            live.keep_tools(used, light.clone());
            let size: usize = live.compiled.lock().unwrap().iter().map(|(_, tools)| tools.size()).sum();
            assert!(size <= MAX_COMPILED_BYTES, "{size}");
        }
        assert!(live.known_tools(used).is_some(), "what is used stays");
        assert_eq!(live.compiled.lock().unwrap().len(), MAX_COMPILED_BYTES / heavy.size() + 1);
    }
}
