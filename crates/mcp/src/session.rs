//! The session of one client: its id, the delegations it started, and one notification when all of them have ended.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{DelegationId, rules::delegation::DelegationStatus, wire::delegation::Delegation};
#[expect(deprecated, reason = "clients before 2026-07-28 can't be notified in any other way")]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::{RoleServer, service::Peer};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{DelegationBackend, elicitation::OpenForms};

/// Dropping it stops its tasks. The delegations continue.
#[derive(Debug)]
pub(crate) struct McpSession {
    id: String,
    tasks: TaskTracker,
    stop: CancellationToken,
    watched: Arc<Mutex<WatchedDelegations>>,
    forms: OpenForms,
}

#[derive(Debug, Default)]
struct WatchedDelegations {
    open: BTreeSet<DelegationId>,
    /// Ended since the last notification.
    ended: Vec<(DelegationId, DelegationStatus)>,
    /// The client's log level suppresses notices.
    quiet: bool,
}

/// Further delegations work, but are not watched.
const MAX_WATCHED: usize = 64;
const WAIT_TIMEOUT: Duration = Duration::from_secs(25);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

// === impl McpSession ===

impl McpSession {
    pub(crate) fn new(id: String) -> Self {
        Self {
            id,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            watched: Arc::default(),
            forms: OpenForms::default(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) const fn forms(&self) -> &OpenForms {
        &self.forms
    }

    /// For work that goes on after a request, until the session ends.
    pub(crate) fn background(&self) -> (&TaskTracker, CancellationToken) {
        (&self.tasks, self.stop.clone())
    }

    /// Sets the minimum log level. Notifications have the level `notice`.
    #[expect(deprecated, reason = "part of the protocol before 2026-07-28")]
    pub(crate) fn set_level(&self, level: LoggingLevel) {
        lock(&self.watched).quiet = !matches!(level, LoggingLevel::Debug | LoggingLevel::Info | LoggingLevel::Notice);
    }

    /// Runs work to completion, even if the client stops waiting for it.
    pub(crate) async fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.tasks.spawn(work).await.ok()
    }

    /// Watches a background delegation. The client is notified once all watched delegations have ended.
    pub(crate) fn watch(
        &self,
        delegations: Arc<dyn DelegationBackend>,
        delegation: &Delegation,
        peer: Peer<RoleServer>,
    ) {
        let (id, revision) = (delegation.delegation_id, delegation.revision);
        {
            let mut watched = lock(&self.watched);
            if watched.open.len() >= MAX_WATCHED || !watched.open.insert(id) {
                return;
            }
        }
        let (watched, stop) = (self.watched.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let status = tokio::select! {
                status = end_of(&*delegations, id, revision) => status,
                () = stop.cancelled() => return,
            };
            if let Some(ended) = record_end(&watched, id, status) {
                notify_all_done(&peer, &ended).await;
            }
        });
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Waits for a delegation to end. `None` if it no longer exists.
async fn end_of(delegations: &dyn DelegationBackend, id: DelegationId, mut revision: u64) -> Option<DelegationStatus> {
    loop {
        match delegations.get(id, Some(revision), WAIT_TIMEOUT).await {
            Ok(delegation) if delegation.status.has_ended() => return Some(delegation.status),
            Ok(delegation) => {
                // Don't spin if the backend returns immediately without news.
                if delegation.revision == revision {
                    sleep(RETRY_INTERVAL).await;
                }
                revision = delegation.revision;
            }
            Err(trouble) if trouble.code == "not_found" => return None,
            // The daemon may be restarting. Its state is on disk.
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// Returns all ended delegations if this was the last open one.
fn record_end(
    watched: &Mutex<WatchedDelegations>,
    id: DelegationId,
    status: Option<DelegationStatus>,
) -> Option<Vec<(DelegationId, DelegationStatus)>> {
    let mut watched = lock(watched);
    watched.open.remove(&id);
    watched.ended.extend(status.map(|status| (id, status)));
    if !watched.open.is_empty() || watched.ended.is_empty() {
        return None;
    }
    let ended = std::mem::take(&mut watched.ended);
    (!watched.quiet).then_some(ended)
}

#[expect(deprecated, reason = "clients before 2026-07-28 can't be notified in any other way")]
async fn notify_all_done(peer: &Peer<RoleServer>, ended: &[(DelegationId, DelegationStatus)]) {
    let each: Vec<_> = ended.iter().map(|(id, status)| format!("{id} {status}")).collect();
    let message = format!(
        "All delegations of this session have ended: {}. Call delegate_output to get each result.",
        each.join(", ")
    );
    let delegations: Vec<_> = ended
        .iter()
        .map(|(id, status)| serde_json::json!({ "delegation_id": id.to_string(), "status": status.as_str() }))
        .collect();
    let data = serde_json::json!({ "message": message, "delegations": delegations });
    let notice = LoggingMessageNotificationParam::new(LoggingLevel::Notice, data).with_logger("attache");
    if let Err(error) = peer.notify_logging_message(notice).await {
        tracing::debug!(%error, "the client disconnected before its delegations ended");
    }
}

fn lock(watched: &Mutex<WatchedDelegations>) -> MutexGuard<'_, WatchedDelegations> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
