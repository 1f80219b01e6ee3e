//! A running hub: its parts, how it starts, and the handle that everything uses to reach it.

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attache_protocol::{
    AgentId, Code, NodeId, Secret, TenantId, Timestamp,
    env::Env,
    wire::system::{HubHealth, Storage},
};
use attache_store::{Durability, Store, WakeHint};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Error, Principal, Result,
    blob::{BlobStore, BlobStoreError},
    bus::{Bus, Topic},
    channel::{self, LiveChannels},
    control::AnonymousUsage,
    deliveries,
    disk_space::{DiskReserve, ReservedStore},
    error::about,
    identity::{
        CardKey, CredentialCache, IdentityFolder, RequestLimits, SealingKey, UnsealError,
        access::AccessControl,
        key_ring,
        limiter::{ClientNetwork, RateLimiter},
        password::Passwords,
        token::TokenSigner,
    },
    long_reads::{LongReadTurn, LongReads},
    metrics::Metrics,
    nodes::{self, LocalLocks, LocalNode, NodeCount, OtherNodes},
    notifications::{self, VapidKey},
    options::Options,
    owner_key::{OwnerKeyState, ensure_owner},
    recovery::DeviceReports,
    render,
    stream::{StreamSlots, feed::RunFeeds},
    sweep,
    tunnel::OpenTunnels,
};

/// Starts a hub.
#[derive(Debug)]
pub struct Hub;

/// The hub as surfaces see it. Cloning is cheap, and all clones are the same hub.
#[derive(Clone)]
pub struct Handle(Arc<HubShared>);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("can't use the data folder {path}: {source}")]
    Folder { path: String, source: io::Error },
    #[error("can't use the store: {0}")]
    Store(attache_store::Error),
    #[error("can't use {path}: {source}")]
    File { path: String, source: io::Error },
    #[error("can't use the cluster key: {0}")]
    ClusterKey(String),
    #[error("the other nodes of this hub don't keep their artifacts in {0}")]
    Artifacts(String),
    #[error("another hub keeps its artifacts in {0}")]
    TakenPlace(String),
    #[error("can't use the access rules: {0}")]
    Rules(String),
    #[error("--public-url {0} must be an http or https URL with a host and no path")]
    PublicUrl(String),
}

struct HubShared {
    options: Options,
    store: Arc<dyn Store>,
    env: Env,
    bus: Bus,
    /// Set if other hubs serve the same database.
    node: Option<LocalNode>,
    live: LiveChannels,
    anonymous_usage: AnonymousUsage,
    credentials: Arc<CredentialCache>,
    locks: LocalLocks,
    long_reads: LongReads,
    /// The tenant people sign in to before they have shown a credential.
    tenant: TenantId,
    owner_key: OwnerKeyState,
    /// Named after the start, for hubs whose options name none.
    default_agent: OnceLock<String>,
    signer: TokenSigner,
    card_key: CardKey,
    vapid_key: VapidKey,
    bot_problems: notifications::BotProblems,
    passwords: Passwords,
    attempts: RequestLimits,
    pairing: PairingSettings,
    signers: deliveries::WebhookSigners,
    push_renderer: OnceLock<Arc<dyn deliveries::PushRenderer>>,
    urgent: deliveries::UrgentDeliveries,
    seal: SealingKey,
    blobs: BlobStore,
    words: Arc<DeviceReports>,
    tunnels: OpenTunnels,
    feeds: RunFeeds,
    stream_slots: StreamSlots,
    metrics: Metrics,
    tasks: TaskTracker,
    /// No new runs are created.
    closed: AtomicBool,
    leaving: AtomicBool,
    draining: CancellationToken,
    access: Arc<AccessControl>,
}

/// How long the store may take to confirm that it can write.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pairing state outside the store.
#[derive(Debug)]
pub(crate) struct PairingSettings {
    pub(crate) key: Secret<[u8; 32]>,
    /// Failed redemptions.
    pub(crate) by_address: RateLimiter<ClientNetwork>,
    pub(crate) by_agent: RateLimiter<AgentId>,
    /// Requests from devices for a code.
    pub(crate) requests: RateLimiter<ClientNetwork>,
}

// === impl Hub ===

impl Hub {
    /// Opens the data folder, creates the owner key at the first start, and starts the sweep.
    pub async fn start(options: Options, store: Arc<dyn Store>, env: Env) -> std::result::Result<Handle, StartError> {
        if let Some(url) = &options.public_url
            && crate::surface::host::authority(url).is_none()
        {
            return Err(StartError::PublicUrl(url.clone()));
        }
        let failed = |source| StartError::Folder { path: options.data.display().to_string(), source };
        let folder = IdentityFolder::open(&options.data).map_err(failed)?;
        let bus = Bus::default();
        let credentials = Arc::new(CredentialCache::new(options.credential_ttl));
        let words = Arc::new(DeviceReports::default());
        let believed = options.nodes.as_ref().map(|nodes| nodes.look_every);
        let access = Arc::new(AccessControl::new(options.permissions.clone(), options.credential_ttl, believed));
        listen(&*store, &bus, &credentials, &words, options.nodes.as_ref().map(|_| Arc::clone(&access)));
        // Time never goes back behind what the store has recorded, whatever the machine's clock says.
        if let Some(seen) = store.clock().await.map_err(StartError::Store)? {
            env.not_before(seen);
        }
        let tenant = store.ensure_tenant(env.tenant_id(), "default", env.now()).await.map_err(StartError::Store)?;
        // Before anything is written: the database may not belong to this folder.
        let blobs = BlobStore::open(&options, env.clone(), tenant).await.map_err(|error| match error {
            BlobStoreError::Taken(place) => StartError::TakenPlace(place),
            BlobStoreError::Folder(source) => {
                StartError::Folder { path: options.artifact_folder().display().to_string(), source }
            }
        })?;
        let node_count = NodeCount::default();
        let node = match &options.nodes {
            // What other nodes hold is theirs. What a dead node held is released once it has been silent for long enough.
            Some(nodes) => {
                let node = LocalNode::start(&*store, env.node_id(), node_count.clone()).await;
                let node = node.map_err(StartError::Store)?;
                node.begin_start(&*store, nodes, &env).await.map_err(StartError::Store)?;
                Some(node)
            }
            None => None,
        };
        let is_alone = node.as_ref().is_none_or(|node| node.other_nodes() == OtherNodes::Absent);
        let created = create_identity(&options, &folder, &*store, &env, tenant, is_alone).await;
        if let Some(node) = &node {
            match &created {
                Ok(_) => node.end_start(&*store).await.map_err(StartError::Store)?,
                Err(_) => node.abandon_start(&*store, &env).await,
            }
        }
        let owner_key = created?;
        let key = folder.pairing_key(&env).map_err(failed)?;
        let signer = TokenSigner::new(folder.token_key(&env).map_err(failed)?, options.origin());
        let card_key = CardKey::new(folder.card_key(&env).map_err(failed)?);
        let vapid_key = VapidKey::new(folder.vapid_key(&env).map_err(failed)?);
        let signers = deliveries::WebhookSigners::new(folder.webhook_key(&env).map_err(failed)?);
        let seal = SealingKey::new(&folder.seal_key(&env).map_err(failed)?);
        if options.nodes.is_none() {
            blobs.remove_interrupted().map_err(failed)?;
        }
        access.open(&*store, tenant, env.now()).await?;
        if node.is_none() {
            // Connections don't survive a hub, so all channels are marked disconnected.
            store.close_channels("hub_restarted", env.now()).await.map_err(StartError::Store)?;
        }
        if node.as_ref().is_none_or(|node| node.other_nodes() == OtherNodes::Absent) {
            // Devices couldn't send heartbeats while no hub was up, so their claims are renewed.
            store.renew_claims(options.heartbeat_timeout, env.now()).await.map_err(StartError::Store)?;
        }

        let limit = options.pairing_failures_per_minute;
        let pairing = PairingSettings {
            key,
            by_address: RateLimiter::new("pairing", limit).shared_by(&node_count),
            by_agent: RateLimiter::new("pairing", limit).shared_by(&node_count),
            requests: RateLimiter::new("pairing", limit).shared_by(&node_count),
        };
        let inner = HubShared {
            bus,
            node,
            live: LiveChannels::default(),
            anonymous_usage: AnonymousUsage::default(),
            credentials,
            locks: LocalLocks::default(),
            long_reads: LongReads::default(),
            tenant,
            owner_key,
            default_agent: OnceLock::new(),
            signer,
            card_key,
            vapid_key,
            bot_problems: notifications::BotProblems::default(),
            passwords: Passwords::new(),
            attempts: RequestLimits::new(&options, &node_count),
            pairing,
            signers,
            push_renderer: OnceLock::new(),
            urgent: deliveries::UrgentDeliveries::default(),
            seal,
            blobs,
            words,
            tunnels: OpenTunnels::default(),
            feeds: RunFeeds::default(),
            stream_slots: StreamSlots::default(),
            metrics: Metrics::default(),
            tasks: TaskTracker::new(),
            closed: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            draining: CancellationToken::new(),
            access,
            // What the hub needs to start is there.
            store: Arc::new(ReservedStore::new(store, DiskReserve::new(&options))),
            options,
            env,
        };
        let handle = Handle(Arc::new(inner));
        handle.tasks().spawn(sweep::run(handle.clone()));
        handle.tasks().spawn(nodes::run(handle.clone()));
        handle.tasks().spawn(deliveries::run(handle.clone()));
        handle.tasks().spawn(notifications::run(handle.clone()));
        handle.tasks().spawn(channel::store_seen_channels(handle.clone()));
        Ok(handle)
    }
}

/// Whether a hub has its keys in this data folder.
pub fn has_keys(data: &Path) -> bool {
    IdentityFolder::has_keys(data)
}

/// What the first start of a hub creates, and all nodes of it have in common: its keys and its owner.
async fn create_identity(
    options: &Options,
    folder: &IdentityFolder,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
    is_alone: bool,
) -> std::result::Result<OwnerKeyState, StartError> {
    if let Some(key) = options.nodes.as_ref().and_then(|nodes| nodes.cluster_key.as_ref()) {
        key_ring::share(folder, key, store, env, tenant).await?;
        key_ring::share_address(&options.origin(), key, store, env, tenant).await?;
        let place = options.bucket.as_ref().map(|place| place.bucket.name());
        let place = place.as_deref().unwrap_or("a folder");
        key_ring::share_place(place, is_alone, key, store, env, tenant).await?;
        if options.bucket.is_none() {
            key_ring::share_artifacts(&options.artifact_folder(), key, store, env, tenant).await?;
        }
    }
    ensure_owner(options, folder, store, env, tenant).await
}

/// Forwards the store's hints to the bus, and drops what is cached of what changed. `shared` are the rules if other nodes
/// may change them; alone, whoever changes keys, users and rules also drops what is cached of them.
fn listen(
    store: &dyn Store,
    bus: &Bus,
    credentials: &Arc<CredentialCache>,
    words: &Arc<DeviceReports>,
    shared: Option<Arc<AccessControl>>,
) {
    let (bus, credentials, words) = (bus.clone(), credentials.clone(), words.clone());
    store.on_wake(Box::new(move |woken| {
        for hint in woken {
            match (hint, &shared) {
                (WakeHint::Runtime(agent), _) => {
                    credentials.forget_agent(*agent);
                    words.forget_agent(*agent);
                }
                (WakeHint::Key(key), Some(_)) => credentials.forget_key(*key),
                (WakeHint::Rights(tenant), Some(access)) => {
                    credentials.forget_all();
                    access.forget(*tenant);
                }
                (WakeHint::Everything, Some(access)) => {
                    credentials.forget_all();
                    access.forget_all();
                }
                _ => {}
            }
        }
        if woken.contains(&WakeHint::Everything) {
            bus.wake_all();
        } else {
            bus.wake(woken.iter().filter_map(|hint| Topic::of(*hint)));
        }
    }));
}

// === impl Handle ===

impl Handle {
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// The state of the owner key at this start.
    pub fn owner_key(&self) -> OwnerKeyState {
        self.0.owner_key
    }

    /// The agent for calls that name none, by name or id.
    pub fn default_agent_name(&self) -> Option<&str> {
        self.options().default_agent.as_deref().or_else(|| self.0.default_agent.get().map(String::as_str))
    }

    /// Names the agent for calls that name none, unless the options do: for programs that find it only in a running
    /// hub. Only the first name counts.
    pub fn set_default_agent(&self, agent: &str) {
        let _ = self.0.default_agent.set(agent.to_owned());
    }

    /// The address where people and devices reach the hub, for example `http://127.0.0.1:7800`.
    pub fn origin(&self) -> String {
        self.0.options.origin()
    }

    pub fn now(&self) -> Timestamp {
        self.0.env.now()
    }

    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// The hub's health, as far as known.
    pub fn health(&self) -> HubHealth {
        self.health_with(self.store().fault().map_or_else(|| self.writable_storage(), render::storage))
    }

    /// The health for `/healthz`, after checking the store.
    pub async fn checked_health(&self) -> HubHealth {
        let storage = match timeout(STORE_TIMEOUT, self.store().ping()).await {
            Ok(Ok(())) => self.writable_storage(),
            Ok(Err(attache_store::Error::Unwritable(fault))) => render::storage(fault),
            Ok(Err(_)) => Storage::Failed,
            Err(_) => Storage::Slow,
        };
        self.health_with(storage)
    }

    fn health_with(&self, storage: Storage) -> HubHealth {
        HubHealth {
            status: if storage == Storage::Ok { "ok" } else { "degraded" }.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            durability: self.durability().as_str().to_owned(),
            store: self.store().engine(),
            storage: Some(storage),
        }
    }

    pub fn durability(&self) -> Durability {
        self.store().durability()
    }

    /// Whether the hub accepts work: it is not shutting down, and its store can write.
    pub async fn ready(&self) -> Result<()> {
        if self.0.leaving.load(Ordering::Relaxed) || !self.takes_runs() {
            return Err(Error::new(Code::Draining, "The hub is shutting down."));
        }
        match timeout(STORE_TIMEOUT, self.store().ping()).await {
            Ok(written) => written.map_err(about("store")),
            Err(_) => Err(Error::new(Code::Overloaded, "The store does not respond.")),
        }
    }

    /// `/readyz` reports not ready, so that a proxy sends new requests to another hub. Everything else goes on.
    pub(crate) fn announce_shutdown(&self) {
        self.0.leaving.store(true, Ordering::Relaxed);
    }

    /// The first step of a shutdown: no new runs are created, and running ones may finish.
    pub fn stop_taking_runs(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn takes_runs(&self) -> bool {
        !self.0.closed.load(Ordering::Relaxed) && !self.is_draining()
    }

    /// Ends long waits early, and `/readyz` reports not ready. [`crate::serve`] calls it on shutdown.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Resolves when the hub starts to drain.
    pub async fn drained(&self) {
        self.0.draining.cancelled().await;
    }

    /// Waits for the hub's own tasks, then closes the store. The last call on a handle.
    pub async fn stop(&self) {
        self.drain();
        self.0.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), self.0.tasks.wait()).await;
        if let Some(node) = self.local_node() {
            node.end(self).await;
        }
        self.0.store.close().await;
    }

    /// Encrypts bytes for one use, which `context` names. For third-party secrets that the hub must later send in
    /// clear, so that neither the database nor a page contains them.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Vec<u8> {
        self.0.seal.seal(&self.0.env, context, plain)
    }

    /// Authenticates a message for one use, which `context` names. Only a hub with the same key gives the same tag.
    pub(crate) fn tag(&self, context: &str, message: &[u8]) -> [u8; 32] {
        self.0.seal.tag(context, message)
    }

    pub fn unseal(&self, context: &str, sealed: &[u8]) -> std::result::Result<Secret<Vec<u8>>, UnsealError> {
        self.0.seal.unseal(context, sealed)
    }

    /// Sets the renderer for A2A push notifications. They wait until it is set. Only the first call counts.
    pub fn set_push_renderer(&self, renderer: Arc<dyn deliveries::PushRenderer>) {
        if self.0.push_renderer.set(renderer).is_ok() {
            self.0.bus.wake([Topic::Deliveries]);
        }
    }

    pub(crate) fn push_renderer(&self) -> Option<&dyn deliveries::PushRenderer> {
        self.0.push_renderer.get().map(|renderer| &**renderer)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// This node, if other hubs serve the same database.
    pub(crate) fn local_node(&self) -> Option<&LocalNode> {
        self.0.node.as_ref()
    }

    /// The node under which this hub's claims and leases are recorded, if other hubs serve the same database. It
    /// changes when the others considered this one dead.
    pub fn node(&self) -> Option<NodeId> {
        self.local_node().map(LocalNode::id)
    }

    /// The channels that are connected to this hub.
    pub(crate) fn live_channels(&self) -> &LiveChannels {
        &self.0.live
    }

    /// What callers without a credential have sent to agents.
    pub(crate) fn anonymous_usage(&self) -> &AnonymousUsage {
        &self.0.anonymous_usage
    }

    pub(crate) fn credentials(&self) -> &CredentialCache {
        &self.0.credentials
    }

    /// The tenant people sign in to before they have shown a credential.
    pub(crate) fn tenant(&self) -> TenantId {
        self.0.tenant
    }

    /// The key that signs agent cards.
    pub fn card_key(&self) -> &CardKey {
        &self.0.card_key
    }

    /// Why chat bots receive no updates.
    pub(crate) fn bot_problems(&self) -> &notifications::BotProblems {
        &self.0.bot_problems
    }

    /// The key that signs requests to push services.
    pub(crate) fn vapid_key(&self) -> &VapidKey {
        &self.0.vapid_key
    }

    pub(crate) fn signer(&self) -> &TokenSigner {
        &self.0.signer
    }

    pub(crate) fn passwords(&self) -> &Passwords {
        &self.0.passwords
    }

    pub(crate) fn attempts(&self) -> &RequestLimits {
        &self.0.attempts
    }

    /// Waits for the turn of a request that reads many pages. Other requests can read in the meantime.
    pub(crate) async fn long_read(&self, by: &Principal) -> LongReadTurn {
        self.0.long_reads.turn(by.holder()).await
    }

    /// Locks for what callers of this node may only do one at a time.
    pub(crate) fn local_locks(&self) -> &LocalLocks {
        &self.0.locks
    }

    pub(crate) fn pairing(&self) -> &PairingSettings {
        &self.0.pairing
    }

    /// The secrets that sign deliveries.
    pub(crate) fn signers(&self) -> &deliveries::WebhookSigners {
        &self.0.signers
    }

    /// Deliveries that a person wants sent now.
    pub(crate) fn urgent(&self) -> &deliveries::UrgentDeliveries {
        &self.0.urgent
    }

    pub(crate) fn blobs(&self) -> &BlobStore {
        &self.0.blobs
    }

    /// What devices reported about their work.
    pub(crate) fn device_reports(&self) -> &DeviceReports {
        &self.0.words
    }

    /// The tunnels between delegators and remotes that are open here.
    pub(crate) fn tunnels(&self) -> &OpenTunnels {
        &self.0.tunnels
    }

    pub(crate) fn feeds(&self) -> &RunFeeds {
        &self.0.feeds
    }

    pub(crate) fn stream_slots(&self) -> &StreamSlots {
        &self.0.stream_slots
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// The access rules of agents.
    pub(crate) fn access(&self) -> &AccessControl {
        &self.0.access
    }

    /// Spawns a task of a surface that has no request behind it. It must end when the hub drains; the hub waits for it.
    pub fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn(task);
    }

    /// The hub's own tasks, which it waits for when it stops.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("origin", &self.origin()).finish_non_exhaustive()
    }
}
