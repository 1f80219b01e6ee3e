//! A hub in this process, on a port of its own, with agents and devices as a test wants them.

use std::{net::SocketAddr, sync::Arc};

use attache_hub::{Handle, Hub, Options, Principal, router, serve};
use attache_protocol::{
    Secret,
    env::Env,
    wire::{
        account::AccountRequest,
        pairing::{AttachRequest, AttachResponse},
    },
};
use attache_store::{Store, memory::MemoryStore, sql::SqlStore};
use axum::Router;
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

type OptionsTweak = Box<dyn FnOnce(&mut Options)>;
type ExtraSurface = Box<dyn FnOnce(Handle) -> Router>;

/// What is to be there: `World::new().agent("echo").start().await`.
pub struct World {
    engine: StoreEngine,
    agents: Vec<String>,
    tune: Vec<OptionsTweak>,
    surfaces: Vec<ExtraSurface>,
}

enum StoreEngine {
    Memory,
    Sqlite,
}

/// A world that runs. Dropping it stops nothing in a hurry; [`RunningWorld::stop`] drains it.
#[derive(Debug)]
pub struct RunningWorld {
    pub hub: Handle,
    pub address: SocketAddr,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    pub owner_key: Secret<String>,
    pub owner: Principal,
    pub data: TempDir,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
}

// === impl World ===

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A hub on the in-memory model, with no agents.
    pub fn new() -> Self {
        Self { engine: StoreEngine::Memory, agents: Vec::new(), tune: Vec::new(), surfaces: Vec::new() }
    }

    #[must_use]
    pub fn on_sqlite(mut self) -> Self {
        self.engine = StoreEngine::Sqlite;
        self
    }

    #[must_use]
    pub fn agent(mut self, name: &str) -> Self {
        self.agents.push(name.to_owned());
        self
    }

    /// Changes the options, for example to shorten a duration.
    #[must_use]
    pub fn tuned(mut self, tune: impl FnOnce(&mut Options) + 'static) -> Self {
        self.tune.push(Box::new(tune));
        self
    }

    /// Puts another surface on the same port, for example the console's.
    #[must_use]
    pub fn surface(mut self, surface: impl FnOnce(Handle) -> Router + 'static) -> Self {
        self.surfaces.push(Box::new(surface));
        self
    }

    pub async fn start(self) -> RunningWorld {
        let data = tempfile::tempdir().expect("a temporary folder can be made");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port is free");
        let address = listener.local_addr().expect("a bound listener has an address");
        let mut options = Options::new(data.path().join("hub"), address);
        // A test doesn't depend on the free space of the machine's disk.
        options.disk_reserve = Some(0);
        for tune in self.tune {
            tune(&mut options);
        }
        let key_file = options.data.join("admin.key");
        let store: Arc<dyn Store> = match self.engine {
            StoreEngine::Memory => Arc::new(MemoryStore::new()),
            StoreEngine::Sqlite => Arc::new(SqlStore::open(&data.path().join("hub.db")).expect("a new database opens")),
        };
        let hub = Hub::start(options, store, Env::system()).await.expect("the hub starts");
        let surfaces =
            self.surfaces.into_iter().fold(router(hub.clone()), |all, surface| all.merge(surface(hub.clone())));
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, surfaces, hub.clone(), async move {
            let _ = stopped.await;
        }));
        let key = std::fs::read_to_string(key_file).expect("the hub wrote its owner's key");
        let owner_key = Secret::new(key.trim().to_owned());
        let owner = hub.authenticate_key(owner_key.expose()).await.expect("the owner's key is valid");
        for name in self.agents {
            let request = AccountRequest { name: Some(name), ..AccountRequest::default() };
            hub.create_account(&owner, request).await.expect("the agent can be made");
        }
        RunningWorld { hub, address, url: format!("http://{address}"), owner_key, owner, data, stop, served }
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("agents", &self.agents).finish_non_exhaustive()
    }
}

// === impl RunningWorld ===

impl RunningWorld {
    /// Pairs a new device to the agent and answers with its token.
    pub async fn device(&self, agent: &str) -> AttachResponse {
        let code = self.hub.create_pairing_code(&self.owner, agent).await.expect("a code can be made");
        let request = AttachRequest {
            pairing_token: Secret::new(code.pairing_code),
            device_name: Some("laptop".to_owned()),
            labels: None,
        };
        self.hub.attach(self.address.ip(), request).await.expect("a fresh code works")
    }

    /// Drains the hub and waits until it has stopped.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.served.await.expect("the hub stops without a panic");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_world_has_its_agents_and_stops() {
        let world =
            World::new().on_sqlite().agent("echo").tuned(|options| options.drain_limit = Duration::from_secs(1));
        let world = world.start().await;
        let attached = world.device("echo").await;
        let device = world.hub.authenticate_runtime(&attached.runtime_token).await.unwrap();
        let pulled = world.hub.pull(&device, "echo", Duration::ZERO).await.unwrap();
        assert_eq!(pulled.delivered(), None);
        world.stop().await;
    }
}
