//! One client's session: its name, the delegations that were begun in it, and the one notice when all of them are over.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{DelegationId, rules::delegation::DelegationStatus, wire::delegation::Delegation};
#[expect(deprecated, reason = "clients before 2026-07-28 have no other way to hear of something")]
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::{RoleServer, service::Peer};
use tokio::time::sleep;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::DelegationBackend;

/// Ends what it started when it goes away; the delegations go on.
#[derive(Debug)]
pub(crate) struct McpSession {
    id: String,
    tasks: TaskTracker,
    stop: CancellationToken,
    watched: Arc<Mutex<WatchedDelegations>>,
}

#[derive(Debug, Default)]
struct WatchedDelegations {
    open: BTreeSet<DelegationId>,
    /// Over since the last notice.
    ended: Vec<(DelegationId, DelegationStatus)>,
    /// Clients may ask for nothing below a level.
    quiet: bool,
}

/// More are delegated all the same; only the notice leaves them out.
const MAX_WATCHED: usize = 64;
const WAIT_TIMEOUT: Duration = Duration::from_secs(25);
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

// === impl McpSession ===

impl McpSession {
    pub(crate) fn new(id: String) -> Self {
        Self { id, tasks: TaskTracker::new(), stop: CancellationToken::new(), watched: Arc::default() }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The notice is of the level `notice`.
    #[expect(deprecated, reason = "part of the protocol before 2026-07-28")]
    pub(crate) fn set_level(&self, level: LoggingLevel) {
        lock(&self.watched).quiet = !matches!(level, LoggingLevel::Debug | LoggingLevel::Info | LoggingLevel::Notice);
    }

    /// Does something that is to be finished although the client may stop waiting for it.
    pub(crate) async fn finish<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        self.tasks.spawn(work).await.ok()
    }

    /// Counts a delegation that nobody waits for, and tells the client once all of them are over.
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

/// Waits for the end of a delegation; none when there is no such delegation any more.
async fn end_of(delegations: &dyn DelegationBackend, id: DelegationId, mut revision: u64) -> Option<DelegationStatus> {
    loop {
        match delegations.get(id, Some(revision), WAIT_TIMEOUT).await {
            Ok(delegation) if delegation.status.has_ended() => return Some(delegation.status),
            Ok(delegation) => {
                // One that answers at once with nothing new is not asked again at once.
                if delegation.revision == revision {
                    sleep(RETRY_INTERVAL).await;
                }
                revision = delegation.revision;
            }
            Err(trouble) if trouble.code == "not_found" => return None,
            // The daemon starts again; what it knows is on the disk.
            Err(_) => sleep(RETRY_INTERVAL).await,
        }
    }
}

/// All that ended, when this was the last.
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

#[expect(deprecated, reason = "clients before 2026-07-28 have no other way to hear of something")]
async fn notify_all_done(peer: &Peer<RoleServer>, ended: &[(DelegationId, DelegationStatus)]) {
    let each: Vec<_> = ended.iter().map(|(id, status)| format!("{id} {status}")).collect();
    let message = format!(
        "All delegations of this session are over: {}. Read each result with delegate_output.",
        each.join(", ")
    );
    let delegations: Vec<_> = ended
        .iter()
        .map(|(id, status)| serde_json::json!({ "delegation_id": id.to_string(), "status": status.as_str() }))
        .collect();
    let data = serde_json::json!({ "message": message, "delegations": delegations });
    let notice = LoggingMessageNotificationParam::new(LoggingLevel::Notice, data).with_logger("attache");
    if let Err(error) = peer.notify_logging_message(notice).await {
        tracing::debug!(%error, "the client is gone before its delegations were over");
    }
}

fn lock(watched: &Mutex<WatchedDelegations>) -> MutexGuard<'_, WatchedDelegations> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
