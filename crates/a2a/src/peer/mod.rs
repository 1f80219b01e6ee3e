//! The bridge to outside agents: runs of an account that stands for an outside agent are executed there. The bridge
//! claims them like a device does, speaks A2A with the agent and relays its output. Everything is recorded before it is
//! sent, so nothing is executed twice, even across restarts.

mod agent;
mod files;
mod message;
mod notices;
mod peer_output;
mod relay;

use std::{collections::HashMap, sync::Arc, time::Duration};

use attache_client::a2a;
use attache_hub::{Handle, control::OutsideAgent, in_process::HostedAgent};
use attache_protocol::{AgentId, KeyPin};
use axum::Router;
use tokio::{sync::watch, time::Instant};

use agent::{PeerAgent, PeerAvailability, PeerConnection};
use notices::NoticeWaiters;

/// How often the bridge checks on its own, in case a hint was lost.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// One per hub.
struct PeerBridge {
    hub: Handle,
    notices: NoticeWaiters,
    hosts: HashMap<AgentId, PeerWorker>,
}

/// The worker for one outside agent.
struct PeerWorker {
    hosted: HostedAgent,
    standing: Arc<watch::Sender<PeerAvailability>>,
    known: ConnectionSpec,
    read_at: Instant,
}

/// The inputs of a connection. When they change, a new one is made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ConnectionSpec {
    url: String,
    pin: Option<KeyPin>,
    credentials: a2a::PeerCredentials,
}

/// Starts the bridge, which ends with the hub. The routes receive push notifications of outside agents.
pub(crate) fn start(hub: &Handle) -> Router {
    let notices = NoticeWaiters::default();
    let bridge = PeerBridge { hub: hub.clone(), notices: notices.clone(), hosts: HashMap::new() };
    hub.spawn_task(bridge.run());
    notices::routes(notices)
}

// === impl PeerBridge ===

impl PeerBridge {
    async fn run(mut self) {
        let hub = self.hub.clone();
        let mut changes = hub.outside_changes();
        let every = REFRESH_INTERVAL.min(self.hub.options().cards_every).max(Duration::from_millis(20));
        loop {
            tokio::select! {
                () = self.look() => {}
                () = hub.drained() => return,
            }
            tokio::select! {
                () = changes.next(every) => {}
                () = hub.drained() => return,
            }
        }
    }

    /// Reconciles the workers with the accounts.
    async fn look(&mut self) {
        let agents = match self.hub.outside_agents().await {
            Ok(agents) => agents,
            Err(error) => return tracing::warn!(%error, "can't list the outside agents"),
        };
        self.hosts.retain(|agent, _| agents.iter().any(|outside| outside.agent == *agent));
        let read = agents.into_iter().map(|outside| self.read(outside));
        let agents = futures_util::future::join_all(read).await;
        for (outside, read_at) in agents {
            self.stand(outside, read_at).await;
        }
    }

    /// The agent with its current card, if it is time to check it again.
    async fn read(&self, outside: OutsideAgent) -> (OutsideAgent, Instant) {
        let host = self.hosts.get(&outside.agent);
        let fresh = host.filter(|host| {
            host.known == ConnectionSpec::of(&outside) && host.read_at.elapsed() < self.hub.options().cards_every
        });
        if let Some(host) = fresh {
            return (outside, host.read_at);
        }
        let read = self.hub.read_card(&outside).await.unwrap_or_else(|error| {
            tracing::warn!(agent.id = %outside.agent, %error, "can't store the card of an outside agent");
            outside
        });
        (read, Instant::now())
    }

    async fn stand(&mut self, outside: OutsideAgent, read_at: Instant) {
        let known = ConnectionSpec::of(&outside);
        let standing = self.standing(&outside);
        if let Some(host) = self.hosts.get_mut(&outside.agent)
            && !host.hosted.is_over()
        {
            host.read_at = read_at;
            let is_same = host.known == known && host.standing.borrow().takes_work == standing.takes_work;
            if !is_same {
                host.known = known;
                host.standing.send_replace(standing);
            }
            return;
        }
        // Without a card we don't know how to reach it. Its runs wait.
        if standing.connection.is_none() {
            return;
        }
        let standing = Arc::new(watch::Sender::new(standing));
        let worker = PeerAgent::new(standing.clone(), self.notices.clone(), self.hub.clone(), read_at);
        match self.hub.host_here(outside.tenant, outside.agent, worker).await {
            // Another node of the hub works for it.
            Ok(None) => {}
            Ok(Some(hosted)) => {
                self.hosts.insert(outside.agent, PeerWorker { hosted, standing, known, read_at });
            }
            Err(error) => tracing::warn!(agent.id = %outside.agent, %error, "can't use an outside agent"),
        }
    }

    fn standing(&self, outside: &OutsideAgent) -> PeerAvailability {
        let Some((_, card)) = &outside.card else { return PeerAvailability::default() };
        let connection = a2a::PeerClient::new(&self.hub.options().egress, card, outside.credentials.clone());
        let connection = connection.map(|peer| PeerConnection { peer, url: outside.url.clone() });
        if let Err(error) = &connection {
            tracing::warn!(agent.id = %outside.agent, %error, "can't use the card of an outside agent");
        }
        let connection = connection.ok();
        let takes_work = connection.is_some() && !outside.is_changed;
        PeerAvailability { takes_work, connection, outside: Some(outside.clone()) }
    }
}

// === impl ConnectionSpec ===

impl ConnectionSpec {
    fn of(outside: &OutsideAgent) -> Self {
        let pin = outside.card.as_ref().map(|(pin, _)| *pin);
        Self { url: outside.url.clone(), pin, credentials: outside.credentials.clone() }
    }
}
