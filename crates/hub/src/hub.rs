//! A running hub: what it is made of, how it starts, and the handle through which everybody reaches it.

use std::{
    fmt, io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attache_protocol::{
    AgentId, Code, Secret, TenantId, Timestamp,
    env::Env,
    wire::system::{HubHealth, Storage},
};
use attache_store::{Durability, Store};
use tokio::time::timeout;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Error, Result,
    blob::BlobStore,
    bus::{Bus, Topic},
    channel::{self, LiveChannels},
    control::Guests,
    deliveries,
    error::about,
    identity::{
        CardKey, CredentialCache, IdentityFolder, LoginLinks, RequestLimits, SealingKey, UnsealError,
        access::AccessControl,
        limiter::{ClientNetwork, RateLimiter},
        password::Passwords,
        token::TokenSigner,
    },
    metrics::Metrics,
    options::Options,
    owner_key::{OwnerKeyState, ensure_owner},
    recovery::DeviceReports,
    render,
    start_secrets::StartSecrets,
    stream::{StreamSlots, feed::RunFeeds},
    sweep,
    tunnel::OpenTunnels,
};

/// Starts a hub.
#[derive(Debug)]
pub struct Hub;

/// The hub as surfaces see it. Cloning is cheap; every clone is the same hub.
#[derive(Clone)]
pub struct Handle(Arc<Inner>);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use the data folder {path}: {source}")]
    Folder { path: String, source: io::Error },
    #[error("cannot use the store: {0}")]
    Store(attache_store::Error),
    #[error("the access rules cannot be used: {0}")]
    Rules(String),
    #[error("--public-url {0} is not an http or https URL with a host and without a path")]
    PublicUrl(String),
}

struct Inner {
    options: Options,
    store: Arc<dyn Store>,
    env: Env,
    bus: Bus,
    live: LiveChannels,
    guests: Guests,
    credentials: Arc<CredentialCache>,
    logins: LoginLinks,
    /// Keys end one after another, so that two owners' keys do not end each other.
    revoking: tokio::sync::Mutex<()>,
    /// Where people sign in who have shown no credential yet.
    tenant: TenantId,
    owner_key: OwnerKeyState,
    signer: TokenSigner,
    card_key: CardKey,
    passwords: Passwords,
    attempts: RequestLimits,
    pairing: PairingSettings,
    signers: deliveries::WebhookSigners,
    letters: OnceLock<Arc<dyn deliveries::PushRenderer>>,
    urgent: deliveries::UrgentDeliveries,
    seal: SealingKey,
    blobs: BlobStore,
    words: Arc<DeviceReports>,
    handover: StartSecrets,
    tunnels: OpenTunnels,
    feeds: RunFeeds,
    stream_slots: StreamSlots,
    metrics: Metrics,
    tasks: TaskTracker,
    /// No new run is made.
    closed: AtomicBool,
    draining: CancellationToken,
    access: AccessControl,
}

/// How long the store may take to say that it can write.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// What pairing needs beyond the store.
#[derive(Debug)]
pub(crate) struct PairingSettings {
    pub(crate) key: Secret<[u8; 32]>,
    /// Failed redemptions.
    pub(crate) by_address: RateLimiter<ClientNetwork>,
    pub(crate) by_agent: RateLimiter<AgentId>,
    /// Requests of devices that want a code.
    pub(crate) requests: RateLimiter<ClientNetwork>,
}

// === impl Hub ===

impl Hub {
    /// Opens the data folder, makes the owner key at the first start, and begins to sweep.
    pub async fn start(options: Options, store: Arc<dyn Store>, env: Env) -> std::result::Result<Handle, StartError> {
        if let Some(url) = &options.public_url
            && crate::surface::host::authority(url).is_none()
        {
            return Err(StartError::PublicUrl(url.clone()));
        }
        let failed = |source| StartError::Folder { path: options.data.display().to_string(), source };
        let folder = IdentityFolder::open(&options.data).map_err(failed)?;
        let key = folder.pairing_key(&env).map_err(failed)?;
        let signer = TokenSigner::new(folder.token_key(&env).map_err(failed)?, options.origin());
        let card_key = CardKey::new(folder.card_key(&env).map_err(failed)?);
        let signers = deliveries::WebhookSigners::new(folder.webhook_key(&env).map_err(failed)?);
        let seal = SealingKey::new(&folder.seal_key(&env).map_err(failed)?);
        let blobs = BlobStore::open(folder.blobs()).map_err(failed)?;

        let bus = Bus::default();
        let credentials = Arc::new(CredentialCache::new(options.credential_ttl));
        let words = Arc::new(DeviceReports::default());
        listen(&*store, &bus, &credentials, &words);
        // Time does not go back behind what the store has seen, whatever the machine believes.
        if let Some(seen) = store.clock().await.map_err(StartError::Store)? {
            env.not_before(seen);
        }
        let tenant = store.ensure_tenant(env.tenant_id(), "default", env.now()).await.map_err(StartError::Store)?;
        let owner_key = ensure_owner(&options, &folder, &*store, &env, tenant).await?;
        let believed = options.credential_ttl;
        let access = AccessControl::open(options.permissions.clone(), &*store, tenant, env.now(), believed).await?;
        // No connection survives a hub: whatever the store believes, nobody is connected now.
        store.close_channels("hub_restarted", env.now()).await.map_err(StartError::Store)?;
        // Nobody could say that it still works while nobody listened: what a device holds is not lost by that.
        store.renew_claims(options.heartbeat_timeout, env.now()).await.map_err(StartError::Store)?;

        let limit = options.pairing_failures_per_minute;
        let pairing = PairingSettings {
            key,
            by_address: RateLimiter::new("pairing", limit),
            by_agent: RateLimiter::new("pairing", limit),
            requests: RateLimiter::new("pairing", limit),
        };
        let inner = Inner {
            bus,
            live: LiveChannels::default(),
            guests: Guests::default(),
            credentials,
            logins: LoginLinks::default(),
            revoking: tokio::sync::Mutex::default(),
            tenant,
            owner_key,
            signer,
            card_key,
            passwords: Passwords::new(),
            attempts: RequestLimits::new(&options),
            pairing,
            signers,
            letters: OnceLock::new(),
            urgent: deliveries::UrgentDeliveries::default(),
            seal,
            blobs,
            words,
            handover: StartSecrets::default(),
            tunnels: OpenTunnels::default(),
            feeds: RunFeeds::default(),
            stream_slots: StreamSlots::default(),
            metrics: Metrics::default(),
            tasks: TaskTracker::new(),
            closed: AtomicBool::new(false),
            draining: CancellationToken::new(),
            access,
            options,
            store,
            env,
        };
        let handle = Handle(Arc::new(inner));
        handle.tasks().spawn(sweep::run(handle.clone()));
        handle.tasks().spawn(deliveries::run(handle.clone()));
        handle.tasks().spawn(channel::store_seen_channels(handle.clone()));
        Ok(handle)
    }
}

/// Turns the store's hints into the bus's, and forgets credentials and words of runtimes that changed.
fn listen(store: &dyn Store, bus: &Bus, credentials: &Arc<CredentialCache>, words: &Arc<DeviceReports>) {
    let (bus, credentials, words) = (bus.clone(), credentials.clone(), words.clone());
    store.on_wake(Box::new(move |woken| {
        for hint in woken {
            if let attache_store::WakeHint::Runtime(agent) = hint {
                credentials.forget_agent(*agent);
                words.forget_agent(*agent);
            }
        }
        bus.wake(woken.iter().map(|hint| Topic::from(*hint)));
    }));
}

// === impl Handle ===

impl Handle {
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Whether the owner key is where this start left it.
    pub fn owner_key(&self) -> OwnerKeyState {
        self.0.owner_key
    }

    /// Where people and devices reach the hub, for example `http://127.0.0.1:7800`.
    pub fn origin(&self) -> String {
        self.0.options.origin()
    }

    pub fn now(&self) -> Timestamp {
        self.0.env.now()
    }

    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// How the hub is, as far as it is known.
    pub fn health(&self) -> HubHealth {
        self.health_with(self.store().fault().map_or(Storage::Ok, render::storage))
    }

    /// What `/healthz` says: the same, after a look at the store.
    pub async fn checked_health(&self) -> HubHealth {
        let storage = match timeout(STORE_TIMEOUT, self.store().ping()).await {
            Ok(Ok(())) => Storage::Ok,
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

    /// Whether the hub takes work: it is not about to stop, and its store can write.
    pub async fn ready(&self) -> Result<()> {
        if !self.takes_runs() {
            return Err(Error::new(Code::Draining, "The hub is shutting down."));
        }
        match timeout(STORE_TIMEOUT, self.store().ping()).await {
            Ok(written) => written.map_err(about("store")),
            Err(_) => Err(Error::new(Code::Overloaded, "The store does not answer.")),
        }
    }

    /// From now on no run is made, and what runs may end: the first step of a shutdown.
    pub fn stop_taking_runs(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn takes_runs(&self) -> bool {
        !self.0.closed.load(Ordering::Relaxed) && !self.is_draining()
    }

    /// From now on long waits end early and `/readyz` says no. [`crate::serve`] calls it when it is told to stop.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.0.draining.is_cancelled()
    }

    /// Resolves when the hub begins to drain.
    pub async fn drained(&self) {
        self.0.draining.cancelled().await;
    }

    /// Waits for the hub's own tasks, then closes the store. The last call on a handle.
    pub async fn stop(&self) {
        self.drain();
        self.0.tasks.close();
        let _ = tokio::time::timeout(Duration::from_secs(5), self.0.tasks.wait()).await;
        self.0.store.close().await;
    }

    /// Bytes that only this hub opens, and only for the same use, which `context` names. For secrets of others that it
    /// must send again in clear: neither the database nor a page then holds them.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Vec<u8> {
        self.0.seal.seal(&self.0.env, context, plain)
    }

    pub fn unseal(&self, context: &str, sealed: &[u8]) -> std::result::Result<Secret<Vec<u8>>, UnsealError> {
        self.0.seal.unseal(context, sealed)
    }

    /// Says who writes A2A push notifications; until then they wait. The first one stays.
    pub fn set_push_renderer(&self, letters: Arc<dyn deliveries::PushRenderer>) {
        if self.0.letters.set(letters).is_ok() {
            self.0.bus.wake([Topic::Deliveries]);
        }
    }

    pub(crate) fn push_renderer(&self) -> Option<&dyn deliveries::PushRenderer> {
        self.0.letters.get().map(|letters| &**letters)
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    pub(crate) fn bus(&self) -> &Bus {
        &self.0.bus
    }

    /// The channels that are connected to this hub.
    pub(crate) fn live_channels(&self) -> &LiveChannels {
        &self.0.live
    }

    /// What callers without a credential have left with agents.
    pub(crate) fn guests(&self) -> &Guests {
        &self.0.guests
    }

    pub(crate) fn credentials(&self) -> &CredentialCache {
        &self.0.credentials
    }

    /// Where people sign in who have shown no credential yet.
    pub(crate) fn tenant(&self) -> TenantId {
        self.0.tenant
    }

    /// The key that cards of agents are signed with.
    pub fn card_key(&self) -> &CardKey {
        &self.0.card_key
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

    pub(crate) fn logins(&self) -> &LoginLinks {
        &self.0.logins
    }

    pub(crate) fn revoking(&self) -> &tokio::sync::Mutex<()> {
        &self.0.revoking
    }

    pub(crate) fn pairing(&self) -> &PairingSettings {
        &self.0.pairing
    }

    /// The secrets that deliveries are signed with.
    pub(crate) fn signers(&self) -> &deliveries::WebhookSigners {
        &self.0.signers
    }

    /// What a person wants to be delivered now.
    pub(crate) fn urgent(&self) -> &deliveries::UrgentDeliveries {
        &self.0.urgent
    }

    pub(crate) fn blobs(&self) -> &BlobStore {
        &self.0.blobs
    }

    /// What devices said of their work.
    pub(crate) fn device_reports(&self) -> &DeviceReports {
        &self.0.words
    }

    /// What delegations hand over and no store holds.
    pub(crate) fn start_secrets(&self) -> &StartSecrets {
        &self.0.handover
    }

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

    /// Runs a task of a surface that has no request behind it. It must end when the hub drains; the hub waits for it.
    pub fn spawn_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn(task);
    }

    /// Tasks that the hub owns and waits for when it stops.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.0.tasks
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("origin", &self.origin()).finish_non_exhaustive()
    }
}
