//! An agent outside, as the hub hosts it.

use std::time::Duration;

use attache_client::{Backoff, a2a};
use attache_hub::{
    Handle,
    in_process::{Failure, InProcessAgent, Output, Work},
};
use tokio::sync::watch;

use super::{notices::Notices, relay::Relay};

/// How often a cancellation is told to an agent that does not answer.
const TRIES: u32 = 8;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// How to speak to it.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) peer: a2a::Peer,
    /// As its owner gave it.
    pub(super) url: String,
}

/// Whether it can be worked with.
#[derive(Debug, Clone, Default)]
pub(super) struct Standing {
    pub(super) connection: Option<Connection>,
    /// Nothing new is sent while its card is not trusted; what was sent is followed.
    pub(super) takes_work: bool,
}

#[derive(Debug)]
pub(super) struct PeerAgent {
    standing: watch::Receiver<Standing>,
    notices: Notices,
    hub: Handle,
}

// === impl PeerAgent ===

impl PeerAgent {
    pub(super) const fn new(standing: watch::Receiver<Standing>, notices: Notices, hub: Handle) -> Self {
        Self { standing, notices, hub }
    }

    async fn connection(&self, fits: impl Fn(&Standing) -> bool + Send + Sync) -> Connection {
        let mut standing = self.standing.clone();
        let found = standing.wait_for(|standing| fits(standing) && standing.connection.is_some()).await;
        let found = found.ok().and_then(|standing| standing.connection.clone());
        match found {
            Some(connection) => connection,
            // The bridge is gone; so is this future soon.
            None => std::future::pending().await,
        }
    }
}

impl InProcessAgent for PeerAgent {
    async fn work(&self, work: Work) -> Result<Output, Failure> {
        let known = work.peer_task().await?;
        // Claimed in the moment in which the agent's card changed.
        if known.is_none() && !self.standing.borrow().takes_work {
            work.release().await?;
            return std::future::pending().await;
        }
        let connection = self.connection(|_| true).await;
        let notice = self.notices.open(&self.hub);
        Relay::new(work, connection, notice).run(known).await
    }

    async fn lost(&self, work: Work) {
        // A run that goes on elsewhere keeps its task.
        if !work.is_over().await {
            return;
        }
        let Ok(Some(task)) = work.peer_task().await else { return };
        let Some(Connection { peer, .. }) = self.standing.borrow().connection.clone() else { return };
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        for _ in 0..TRIES {
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
                // It has ended already, or was never there.
                Ok(()) | Err(_) => return,
            }
        }
        tracing::warn!(run.id = %task.run, "an agent outside could not be told that its task is cancelled");
    }

    async fn ready(&self) {
        self.connection(|standing| standing.takes_work).await;
    }
}
