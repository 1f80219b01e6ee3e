//! An outside agent, as hosted by the hub.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_client::{Backoff, a2a};
use attache_hub::{
    Handle,
    control::OutsideAgent,
    in_process::{AgentFailure, AgentOutput, InProcessAgent, InProcessRun},
};
use attache_protocol::rules::run::FailureCode;
use tokio::{sync::watch, time::Instant};

use super::{
    message,
    notices::NoticeWaiters,
    relay::{PeerRunRelay, RelayInputs},
};

/// How often a cancellation is sent to an agent that doesn't answer.
const MAX_ATTEMPTS: u32 = 8;
const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// How to reach it.
#[derive(Debug, Clone)]
pub(super) struct PeerConnection {
    pub(super) peer: a2a::PeerClient,
    /// As entered by its owner.
    pub(super) url: String,
}

/// Whether it can be used.
#[derive(Debug, Clone, Default)]
pub(super) struct PeerAvailability {
    pub(super) connection: Option<PeerConnection>,
    /// Nothing new is sent while its card isn't trusted. Tasks already sent are followed.
    pub(super) takes_work: bool,
    pub(super) outside: Option<OutsideAgent>,
}

#[derive(Debug)]
pub(super) struct PeerAgent {
    standing: Arc<watch::Sender<PeerAvailability>>,
    notices: NoticeWaiters,
    hub: Handle,
    /// When its card was last checked.
    looked_at: Mutex<Instant>,
}

// === impl PeerAgent ===

impl PeerAgent {
    pub(super) const fn new(
        standing: Arc<watch::Sender<PeerAvailability>>,
        notices: NoticeWaiters,
        hub: Handle,
        looked_at: Instant,
    ) -> Self {
        Self { standing, notices, hub, looked_at: Mutex::new(looked_at) }
    }

    /// Whether new tasks may be sent: its card is still the trusted one. An unreadable card counts as unchanged.
    async fn takes_work(&self) -> bool {
        let looked_at = *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let outside = self.standing.borrow().outside.clone();
        if let Some(outside) = outside.filter(|_| looked_at.elapsed() >= self.hub.options().card_fresh) {
            let now = Instant::now();
            match self.hub.read_card(&outside).await {
                Ok(read) => {
                    *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
                    self.standing.send_if_modified(|standing| {
                        // Someone may have trusted it in the meantime.
                        let is_same = standing.outside.as_ref().is_some_and(|known| known.card == outside.card);
                        let stops = is_same && read.is_changed && standing.takes_work;
                        if is_same {
                            standing.takes_work = standing.takes_work && !read.is_changed;
                            standing.outside = Some(read);
                        }
                        stops
                    });
                }
                Err(error) => tracing::warn!(agent.id = %outside.agent, %error, "can't store a card"),
            }
        }
        self.standing.borrow().takes_work
    }

    async fn connection(&self, fits: impl Fn(&PeerAvailability) -> bool + Send + Sync) -> PeerConnection {
        let mut standing = self.standing.subscribe();
        let found = standing.wait_for(|standing| fits(standing) && standing.connection.is_some()).await;
        let found = found.ok().and_then(|standing| standing.connection.clone());
        match found {
            Some(connection) => connection,
            // The bridge is gone, and this future soon will be too.
            None => std::future::pending().await,
        }
    }
}

impl InProcessAgent for PeerAgent {
    async fn work(&self, work: InProcessRun) -> Result<AgentOutput, AgentFailure> {
        let known = work.peer_task().await?;
        // The agent's card has changed since the last check.
        if known.is_none() && !self.takes_work().await {
            work.release().await?;
            return std::future::pending().await;
        }
        if known.is_none() && message::is_too_large(&work) {
            let text = "The attachments are too large for an outside agent. The limit is 700 KiB in total.";
            return Err(AgentFailure::new(text).code(FailureCode::Rejected));
        }
        let connection = self.connection(|_| true).await;
        let notice = self.notices.open(&self.hub);
        let inputs = RelayInputs::open(&work).await?;
        PeerRunRelay::new(work, connection, notice, inputs).run(known).await
    }

    async fn lost(&self, work: InProcessRun) {
        // A run that continues elsewhere keeps its task.
        if !work.is_over().await {
            return;
        }
        let Ok(Some(task)) = work.peer_task().await else { return };
        let Some(PeerConnection { peer, .. }) = self.standing.borrow().connection.clone() else { return };
        let mut backoff = Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF);
        for _ in 0..MAX_ATTEMPTS {
            let id = match task.peer_task_id.clone() {
                Some(id) => Ok(Some(id)),
                None => super::relay::find(&peer, &task.message_id).await.map(|found| found.map(|task| task.what.id)),
            };
            let told = match id {
                Ok(Some(id)) => peer.cancel(&id).await.map(drop),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            match told {
                Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(self.hub.env())).await,
                // It has already ended, or never existed.
                Ok(()) | Err(_) => return,
            }
        }
        tracing::warn!(run.id = %task.run, "couldn't cancel the task at an outside agent");
    }

    async fn ready(&self) {
        self.connection(|standing| standing.takes_work).await;
    }
}
