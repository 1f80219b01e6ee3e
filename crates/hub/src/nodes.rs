//! This node among those that serve the same database: it sends heartbeats, ends nodes that stopped sending them, and looks
//! at everything now and then, because hints between nodes may be lost.
//!
//! A node counts as alive by its heartbeats and the watcher's own clock, so no two clocks are compared.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use attache_protocol::{Code, NodeId, Secret, env::Env};
use attache_store::{Error as StoreError, Store, record::node::NodeRecord};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, sleep},
};

use crate::{Error, Handle, Result, error::about};

/// For a hub that serves its database together with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOptions {
    /// How often it beats, and looks at everything that others may have changed. Also how long rules are believed.
    pub look_every: Duration,
    /// A node without a heartbeat for longer counts as dead, and its claims and leases are released.
    pub timeout: Duration,
    /// Encrypts the hub's keys in the database. `None`: the nodes have one data folder in common, and its keys.
    pub cluster_key: Option<Secret<[u8; 32]>>,
    /// Where the other nodes reach this one, as in `http://10.0.0.5:7800`. Without it, they don't find its tunnels.
    pub url: Option<String>,
}

/// Whether others serve the database, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtherNodes {
    /// Other nodes are recorded, but none has sent a heartbeat since this one started.
    Unknown,
    Absent,
    Present,
}

/// How many nodes serve the database: 1 for a hub on its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeCount(Arc<AtomicU32>);

/// This node, and what it saw of the others.
#[derive(Debug)]
pub(crate) struct LocalNode {
    view: Mutex<NodeView>,
    count: NodeCount,
}

#[derive(Debug)]
struct NodeView {
    own: NodeRecord,
    other_nodes: OtherNodes,
    /// The beats of other nodes, and since when there were no more.
    others: HashMap<NodeId, (i64, Instant)>,
}

/// What only one caller does at a time, whichever node serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClusterLock {
    /// Revoking keys, so that two owners can't revoke each other.
    Revoking,
    /// Creating child runs that share a budget, so that none gets what another one has reserved.
    SharingBudget,
}

/// The locks among this node's own callers.
#[derive(Debug, Default)]
pub(crate) struct LocalLocks {
    revoking: Arc<tokio::sync::Mutex<()>>,
    sharing_budget: Arc<tokio::sync::Mutex<()>>,
}

/// A held lock, released when this is dropped.
#[derive(Debug)]
pub(crate) struct ClusterLockGuard {
    local: Option<OwnedMutexGuard<()>>,
    /// If other nodes serve the database.
    leased: Option<(Handle, NodeId, ClusterLock)>,
}

/// How often to ask for a lock that another node holds, and for how long.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to try to release a lock.
const MAX_RELEASES: u32 = 6;

/// The name that a node leases while it starts: what the first one creates, the next ones find.
const STARTING: &str = "turn/starting";

/// Why the store says that the channels of a node are disconnected.
const NODE_LOST: &str = "node_lost";
const NODE_STOPPED: &str = "hub_stopped";

// === impl NodeOptions ===

impl Default for NodeOptions {
    fn default() -> Self {
        Self { look_every: Duration::from_secs(1), timeout: Duration::from_secs(10), cluster_key: None, url: None }
    }
}

// === impl NodeCount ===

impl NodeCount {
    fn set(&self, nodes: usize) {
        self.0.store(u32::try_from(nodes).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> NonZeroU32 {
        NonZeroU32::new(self.0.load(Ordering::Relaxed)).unwrap_or(NonZeroU32::MIN)
    }
}

// === impl LocalNode ===

impl LocalNode {
    /// Records the node in the store.
    pub(crate) async fn start(store: &dyn Store, id: NodeId, count: NodeCount) -> attache_store::Result<Self> {
        store.start_node(id).await?;
        let nodes = store.beat_node(id).await?;
        let view = NodeView {
            own: NodeRecord { id, beats: 0 },
            other_nodes: if nodes.len() == 1 { OtherNodes::Absent } else { OtherNodes::Unknown },
            others: HashMap::new(),
        };
        let node = Self { view: Mutex::new(view), count };
        drop(node.note(&nodes));
        Ok(node)
    }

    /// Waits until no other node is starting. A node that died while starting is ended, because perhaps no other node would.
    pub(crate) async fn begin_start(
        &self,
        store: &dyn Store,
        options: &NodeOptions,
        env: &Env,
    ) -> attache_store::Result<()> {
        while !store.lease(self.id(), STARTING).await? {
            sleep(LOCK_INTERVAL).await;
            let nodes = store.beat_node(self.id()).await?;
            let silent = self.note(&nodes).silent(options.timeout);
            for node in silent {
                store.end_node(node, NODE_LOST, env.now()).await?;
            }
        }
        Ok(())
    }

    /// The next one may start.
    pub(crate) async fn end_start(&self, store: &dyn Store) -> attache_store::Result<()> {
        store.release_lease(self.id(), STARTING).await
    }

    /// The start failed: nothing of it stays.
    pub(crate) async fn abandon_start(&self, store: &dyn Store, env: &Env) {
        if let Ok(nodes) = store.beat_node(self.id()).await {
            drop(self.note(&nodes));
        }
        let own = self.lock().own;
        let _ = store.end_node(own, NODE_STOPPED, env.now()).await;
    }

    /// Whether the node may still serve. One that isn't known may have just started.
    pub(crate) async fn may_serve(&self, hub: &Handle, node: NodeId) -> bool {
        if self.lock().others.contains_key(&node) {
            return true;
        }
        let Ok(nodes) = hub.store().beat_node(self.id()).await else { return false };
        self.note(&nodes).others.contains_key(&node)
    }

    fn lock(&self) -> MutexGuard<'_, NodeView> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, nodes: &[NodeRecord]) -> MutexGuard<'_, NodeView> {
        self.count.set(nodes.len());
        let mut view = self.lock();
        view.note(nodes, Instant::now());
        view
    }

    pub(crate) fn id(&self) -> NodeId {
        self.lock().own.id
    }

    pub(crate) fn other_nodes(&self) -> OtherNodes {
        self.lock().other_nodes
    }

    /// Beats, and ends the nodes that were silent for too long.
    async fn beat(&self, hub: &Handle, timeout: Duration) -> attache_store::Result<()> {
        let nodes = hub.store().beat_node(self.id()).await?;
        let silent = self.note(&nodes).silent(timeout);
        for node in silent {
            if hub.store().end_node(node, NODE_LOST, hub.now()).await? {
                tracing::warn!(node.id = %node.id, "a node stopped sending heartbeats; its claims and leases were released");
            }
            self.lock().others.remove(&node.id);
        }
        Ok(())
    }

    /// The other nodes considered this one dead. Its connections and leases are lost; it continues as a new node.
    async fn start_again(&self, hub: &Handle) -> attache_store::Result<()> {
        let id = hub.env().node_id();
        hub.store().start_node(id).await?;
        let former = std::mem::replace(&mut self.lock().own, NodeRecord { id, beats: 0 });
        tracing::warn!(node.id = %id, node.former = %former.id, "the other nodes considered this one dead");
        Ok(())
    }

    /// Whether other nodes were serving while this one was stalled. A single further heartbeat may come from a node that stalled too.
    pub(crate) async fn others_served(&self, hub: &Handle) -> attache_store::Result<bool> {
        let before = self.lock().others.clone();
        let nodes = hub.store().beat_node(self.id()).await?;
        Ok(nodes.iter().any(|node| before.get(&node.id).is_some_and(|(beats, _)| node.beats > beats + 1)))
    }

    /// The node stops: nothing is its own any more.
    pub(crate) async fn end(&self, hub: &Handle) {
        // A heartbeat that was recorded but not answered may account for one of them.
        for _ in 0..2 {
            let own = self.lock().own;
            match hub.store().end_node(own, NODE_STOPPED, hub.now()).await {
                Ok(false) => match hub.store().beat_node(own.id).await {
                    Ok(nodes) => drop(self.note(&nodes)),
                    Err(_) => return,
                },
                Ok(true) | Err(_) => return,
            }
        }
    }
}

// === impl NodeView ===

impl NodeView {
    fn note(&mut self, nodes: &[NodeRecord], now: Instant) {
        self.others.retain(|id, _| nodes.iter().any(|node| node.id == *id));
        for node in nodes {
            if node.id == self.own.id {
                self.own = *node;
                continue;
            }
            match self.others.get_mut(&node.id) {
                Some((beats, _)) if *beats == node.beats => {}
                Some(known) => {
                    *known = (node.beats, now);
                    self.other_nodes = OtherNodes::Present;
                }
                None => {
                    self.others.insert(node.id, (node.beats, now));
                }
            }
        }
        if self.others.is_empty() {
            self.other_nodes = OtherNodes::Absent;
        }
    }

    fn silent(&self, timeout: Duration) -> Vec<NodeRecord> {
        let silent = self.others.iter().filter(|(_, (_, since))| since.elapsed() >= timeout);
        silent.map(|(id, (beats, _))| NodeRecord { id: *id, beats: *beats }).collect()
    }
}

// === impl ClusterLock ===

impl ClusterLock {
    const fn lease(self) -> &'static str {
        match self {
            Self::Revoking => "turn/revoking",
            Self::SharingBudget => "turn/sharing_budget",
        }
    }
}

// === impl LocalLocks ===

impl LocalLocks {
    async fn take(&self, kind: ClusterLock) -> OwnedMutexGuard<()> {
        let lock = match kind {
            ClusterLock::Revoking => &self.revoking,
            ClusterLock::SharingBudget => &self.sharing_budget,
        };
        lock.clone().lock_owned().await
    }
}

// === impl ClusterLockGuard ===

impl Drop for ClusterLockGuard {
    /// The next caller of this node waits until the lease is released: it is the node's, not the caller's.
    fn drop(&mut self) {
        let (Some(local), Some((hub, node, kind))) = (self.local.take(), self.leased.take()) else { return };
        hub.clone().tasks().spawn(async move {
            for attempt in 0..MAX_RELEASES {
                if hub.store().release_lease(node, kind.lease()).await.is_ok() {
                    break;
                }
                sleep(LOCK_INTERVAL * 2_u32.pow(attempt)).await;
            }
            drop(local);
        });
    }
}

// === impl Handle ===

impl Handle {
    /// Waits for a lock that all nodes share. Cached credentials are looked up again afterwards.
    pub(crate) async fn cluster_lock(&self, kind: ClusterLock) -> Result<ClusterLockGuard> {
        let local = Some(self.local_locks().take(kind).await);
        if self.local_node().is_none() {
            return Ok(ClusterLockGuard { local, leased: None });
        }
        let begun = Instant::now();
        while begun.elapsed() < LOCK_TIMEOUT {
            if let Some(node) = self.node()
                && self.store().lease(node, kind.lease()).await.map_err(about("node"))?
            {
                self.credentials().forget_all();
                return Ok(ClusterLockGuard { local, leased: Some((self.clone(), node, kind)) });
            }
            sleep(LOCK_INTERVAL).await;
        }
        Err(Error::new(Code::Overloaded, "Other nodes of the hub are busy with requests of this kind."))
    }
}

/// Runs until the hub drains. The node is ended when everything it did has stopped.
pub(crate) async fn run(hub: Handle) {
    let (Some(node), Some(options)) = (hub.local_node(), hub.options().nodes.as_ref()) else { return };
    loop {
        tokio::select! {
            () = hub.drained() => return,
            () = sleep(options.look_every) => {}
        }
        let beaten = match node.beat(&hub, options.timeout).await {
            Err(StoreError::NodeEnded) => node.start_again(&hub).await,
            beaten => beaten,
        };
        if let Err(error) = beaten {
            tracing::debug!(%error, "could not beat");
        }
        hub.bus().wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_when_its_beats_stay_the_same_for_long() {
        let env = Env::seeded(1);
        let record = |id, beats| NodeRecord { id, beats };
        let (own, other, third) = (env.node_id(), env.node_id(), env.node_id());
        let mut view = NodeView { own: record(own, 0), other_nodes: OtherNodes::Unknown, others: HashMap::new() };
        let long_ago = Instant::now() - Duration::from_secs(60);
        view.note(&[record(own, 1), record(other, 7), record(third, 3)], long_ago);
        assert_eq!((view.other_nodes, view.own.beats), (OtherNodes::Unknown, 1));
        view.note(&[record(own, 2), record(other, 8), record(third, 3)], Instant::now());
        assert_eq!(view.other_nodes, OtherNodes::Present);
        assert_eq!(view.silent(Duration::from_secs(10)), [record(third, 3)]);
        view.note(&[record(own, 3)], Instant::now());
        assert_eq!((view.other_nodes, view.silent(Duration::ZERO)), (OtherNodes::Absent, Vec::new()));
    }
}
