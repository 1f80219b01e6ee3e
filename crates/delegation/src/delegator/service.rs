//! The delegator service: accepts delegations, reports their status, and starts each one when the scheduler allows it.

mod folder_lock;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use attache_protocol::{
    Code, DelegationId,
    env::Env,
    rules::{delegation::DelegationState, staging::FolderUse},
    wire::{
        awcp::AccessMode,
        delegation::{DelegateRequest, Delegation, DelegationSession},
    },
};
use tokio::sync::{oneshot, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    DelegatorRefusal, Options,
    audit::DelegatorAuditEntry as AuditEntry,
    export::{self, ExportServer},
    keyring::DelegationKeys,
    lease::LeaseTask,
    policy::DelegationAdmission,
    queue::{FolderClaim, QueueDecision},
    records::DelegationRecords,
    session::SessionTracker,
    staging,
};
use crate::{Error, compat::ExchangeFolders};

/// Clones share the same state.
#[derive(Debug, Clone)]
pub struct DelegatorService(pub(super) Arc<DelegatorShared>);

#[derive(Debug)]
pub(super) struct DelegatorShared {
    pub(super) options: Options,
    pub(super) records: DelegationRecords,
    pub(super) exports: ExportServer,
    pub(super) sessions: SessionTracker,
    /// Copies for peers that get archives.
    pub(super) archives: ExchangeFolders,
    /// Owns every lease task and every background notification.
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    entries: Mutex<BTreeMap<DelegationId, DelegationEntry>>,
}

#[derive(Debug)]
struct DelegationEntry {
    shown: watch::Sender<Delegation>,
    /// `None` once it has ended.
    live: Option<LiveDelegation>,
}

#[derive(Debug)]
struct LiveDelegation {
    cancel: CancellationToken,
    claim: FolderClaim,
    /// `None` once it has been released from the queue.
    go: Option<oneshot::Sender<()>>,
}

/// Further delegations are refused.
const MAX_LIVE: usize = 1000;
/// How long a cancellation waits for the delegation to end before it is answered.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(10);
const PRUNE_INTERVAL: Duration = Duration::from_secs(60 * 60);

// === impl DelegatorService ===

impl DelegatorService {
    pub(super) fn new(options: Options, records: DelegationRecords, exports: ExportServer) -> Self {
        let archives = ExchangeFolders::at(&options.home);
        Self(Arc::new(DelegatorShared {
            archives,
            options,
            records,
            exports,
            sessions: SessionTracker::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
            entries: Mutex::default(),
        }))
    }

    pub(crate) fn env(&self) -> &Env {
        &self.0.options.env
    }

    /// Accepts a request and returns immediately. The delegation runs in the background.
    pub async fn delegate(&self, request: DelegateRequest) -> Result<Delegation, DelegatorRefusal> {
        self.check_capacity()?;
        let (policy, home, checked) = (self.0.options.policy.clone(), self.0.options.home.clone(), request.clone());
        let keys = self.0.options.keys.clone();
        let admitted = blocking(move || {
            let private = keys.private_folders();
            let admitted = policy.admit(&checked);
            // Allowing what can never be delegated wouldn't help.
            if admitted.as_ref().is_err_and(|refusal| refusal.code == Code::FolderNotAllowed)
                && let Ok(folder) = Path::new(&checked.workspace_dir).canonicalize()
            {
                export::refuse_private(&folder, &private)?;
                export::check_folder(&home, &folder)?;
            }
            let mut admitted = admitted?;
            export::withhold_private(&mut admitted, &private)?;
            export::check(&home, &admitted, &checked).map(|()| admitted)
        });
        let admitted = admitted.await??;
        self.begin(request, admitted, None).await
    }

    /// Delegates a folder that was made for this one delegation, which the caller has admitted. It is exported when `gate`
    /// opens, so that it can be filled on the agreed terms.
    pub(crate) async fn delegate_made(
        &self,
        request: DelegateRequest,
        admitted: DelegationAdmission,
        gate: oneshot::Receiver<()>,
    ) -> Result<Delegation, DelegatorRefusal> {
        self.check_capacity()?;
        self.begin(request, admitted, Some(gate)).await
    }

    fn check_capacity(&self) -> Result<(), DelegatorRefusal> {
        if self.0.stop.is_cancelled() {
            return Err(DelegatorRefusal::new(Code::Draining, "the daemon is stopping", "Try again in a moment."));
        }
        if self.live() >= MAX_LIVE {
            let hint = "Wait for some to end, or cancel some.";
            return Err(DelegatorRefusal::new(Code::Overloaded, "too many delegations are in progress", hint));
        }
        Ok(())
    }

    async fn begin(
        &self,
        request: DelegateRequest,
        admitted: DelegationAdmission,
        gate: Option<oneshot::Receiver<()>>,
    ) -> Result<Delegation, DelegatorRefusal> {
        if request.staged && request.awcp_compat {
            return Err(staging::archived());
        }
        if request.staged && admitted.terms.access_mode == AccessMode::Ro {
            return Err(staging::read_only());
        }
        let now = self.env().now();
        let delegation_id = DelegationId::from_uuid(self.env().uuid());
        let state = DelegationState::new(admitted.terms, now);
        let delegation = Delegation {
            peer_url: admitted.peer.url.clone(),
            workspace_dir: admitted.folder.to_string_lossy().into_owned(),
            ..Delegation::of(&request, admitted.terms, delegation_id, now)
        };
        let credentials = self.credentials(&admitted).await?;
        let (records, written, recorded) = (self.0.records.clone(), delegation.clone(), request.clone());
        blocking(move || records.create(&written, &recorded)).await??;
        let claim = FolderClaim {
            delegation: delegation_id,
            peer: admitted.peer.url.clone(),
            folder: admitted.folder.clone(),
            folder_use: if request.staged { FolderUse::Copies } else { FolderUse::direct(admitted.terms.access_mode) },
        };
        let cancel = self.0.stop.child_token();
        let (go, released) = oneshot::channel();
        {
            let mut entries = self.entries();
            let live = LiveDelegation { cancel: cancel.clone(), claim, go: Some(go) };
            entries.insert(
                delegation_id,
                DelegationEntry { shown: watch::Sender::new(delegation.clone()), live: Some(live) },
            );
        }
        if let Some(session) = &request.session_id {
            self.0.sessions.begin(session, delegation_id);
        }
        self.note(delegation_id, "create", Some(&delegation.peer_url));
        let lease = LeaseTask::new(self.clone(), delegation_id, request, admitted, credentials, state, cancel);
        self.0.tasks.spawn(lease.gated(gate).run(released));
        self.schedule();
        Ok(delegation)
    }

    pub fn list(&self) -> Vec<Delegation> {
        self.entries().values().rev().map(|entry| entry.shown.borrow().clone()).collect()
    }

    pub fn get(&self, delegation: DelegationId) -> Result<Delegation, DelegatorRefusal> {
        let entries = self.entries();
        let entry = entries.get(&delegation).ok_or_else(|| DelegatorRefusal::not_found(delegation))?;
        Ok(entry.shown.borrow().clone())
    }

    /// Waits until the revision exceeds `after`, the delegation ends, or `wait` elapses.
    pub async fn wait(
        &self,
        delegation: DelegationId,
        after: u64,
        wait: Duration,
    ) -> Result<Delegation, DelegatorRefusal> {
        let mut shown = {
            let entries = self.entries();
            entries.get(&delegation).ok_or_else(|| DelegatorRefusal::not_found(delegation))?.shown.subscribe()
        };
        let is_news = |shown: &Delegation| shown.revision > after || shown.status.has_ended();
        let _ = tokio::time::timeout(wait, shown.wait_for(is_news)).await;
        let now = shown.borrow().clone();
        Ok(now)
    }

    pub async fn wait_for_session(&self, session: &str, after: u64, wait: Duration) -> DelegationSession {
        let waited = tokio::time::timeout(wait, self.0.sessions.wait(session, after)).await;
        waited.unwrap_or_else(|_| self.0.sessions.get(session))
    }

    /// Ends it; one that has already ended is left as it is. Returns once access is revoked and the remote has been
    /// notified.
    pub async fn cancel(&self, delegation: DelegationId) -> Result<Delegation, DelegatorRefusal> {
        {
            let entries = self.entries();
            let entry = entries.get(&delegation).ok_or_else(|| DelegatorRefusal::not_found(delegation))?;
            if let Some(live) = &entry.live {
                live.cancel.cancel();
            }
        }
        self.wait(delegation, u64::MAX, CANCEL_TIMEOUT).await
    }

    pub async fn cancel_session(&self, session: &str) -> Vec<Delegation> {
        let of_session: Vec<DelegationId> = {
            let entries = self.entries();
            let matching = entries.iter().filter(|(_, entry)| {
                entry.live.is_some() && entry.shown.borrow().session_id.as_deref() == Some(session)
            });
            let cancelled = matching.map(|(id, entry)| (*id, entry.live.as_ref().map(|live| live.cancel.cancel())));
            cancelled.map(|(id, _)| id).collect()
        };
        let mut cancelled = Vec::new();
        for delegation in of_session {
            cancelled.extend(self.wait(delegation, u64::MAX, CANCEL_TIMEOUT).await);
        }
        cancelled
    }

    /// Waits until the service stops.
    pub(crate) async fn stopped(&self) {
        self.0.stop.cancelled().await;
    }

    /// Runs work that the service waits for when it stops.
    pub(crate) fn own(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    pub fn live(&self) -> usize {
        self.entries().values().filter(|entry| entry.live.is_some()).count()
    }

    /// The address of the SSH server.
    pub fn ssh(&self) -> std::net::SocketAddr {
        self.0.exports.address
    }

    /// Revokes every export, and returns once every remote has been notified.
    pub async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Adds a delegation that ended before this daemon started.
    pub(super) fn remember(&self, delegation: Delegation) {
        let entry = DelegationEntry { shown: watch::Sender::new(delegation.clone()), live: None };
        self.entries().insert(delegation.delegation_id, entry);
    }

    /// Changes the status that callers see, and wakes those who wait for a change.
    pub(super) fn show(&self, delegation: DelegationId, change: impl FnOnce(&mut Delegation)) {
        if let Some(entry) = self.entries().get(&delegation) {
            entry.shown.send_modify(|shown| {
                change(shown);
                shown.revision += 1;
            });
        }
    }

    /// Shows what the delegation waits for. The revision increases only if that changed.
    pub(super) fn set_waits_for(&self, delegation: DelegationId, waits_for: Option<String>) {
        if let Some(entry) = self.entries().get(&delegation) {
            wait_for(entry, waits_for);
        }
    }

    pub(super) fn subscribe(&self, delegation: DelegationId) -> Option<watch::Receiver<Delegation>> {
        self.entries().get(&delegation).map(|entry| entry.shown.subscribe())
    }

    /// Saves the current status to its record.
    pub(super) async fn persist(&self, delegation: DelegationId) {
        let Ok(shown) = self.get(delegation) else { return };
        let records = self.0.records.clone();
        let saved = blocking(move || records.save(&shown)).await;
        if let Err(error) | Ok(Err(error)) = saved.map(|saved| saved.map_err(DelegatorRefusal::from)) {
            tracing::error!(delegation.id = %delegation, error = error.message, "failed to write the record");
        }
    }

    /// The terms are agreed. If they are read-only, others can share the folder from now on.
    pub(super) fn agree(&self, delegation: DelegationId, terms: attache_protocol::rules::delegation::LeaseTerms) {
        if let Some(live) = self.entries().get_mut(&delegation).and_then(|entry| entry.live.as_mut())
            && live.claim.folder_use != FolderUse::Copies
        {
            live.claim.folder_use = FolderUse::direct(terms.access_mode);
        }
        self.schedule();
    }

    /// The remote works in a copy from now on, so nobody has to wait for it.
    pub(super) fn set_apart(&self, delegation: DelegationId) {
        if let Some(live) = self.entries().get_mut(&delegation).and_then(|entry| entry.live.as_mut()) {
            live.claim.folder_use = FolderUse::Apart;
        }
        self.schedule();
    }

    /// Removes the originals of delegations that ended long ago, in the background.
    pub(super) fn prune(&self) {
        let shown: Vec<Delegation> = self.entries().values().map(|entry| entry.shown.borrow().clone()).collect();
        // What was applied of a copy can be reverted at least as long as the rest can be applied.
        let is_waiting = |one: &&Delegation| one.staged.as_ref().is_some_and(|staged| staged.unapplied > 0);
        let settled = shown.iter().filter(|one| !is_waiting(one));
        let mut ended: Vec<_> = settled.filter_map(|one| Some((one.delegation_id, one.ended_at?))).collect();
        ended.sort_by_key(|(_, at)| *at);
        let (records, policy, now) = (self.0.records.clone(), self.0.options.policy.clone(), self.env().now());
        // A revert holds a lock on its folder, and reports it if the originals are gone by then.
        let service = self.clone();
        self.0.tasks.spawn_blocking(move || {
            records.prune(&ended, policy.retention(), now);
            service.prune_copies();
        });
    }

    /// Prunes from time to time, until the daemon stops.
    pub(super) fn keep_pruning(&self) {
        let service = self.clone();
        self.0.tasks.spawn(async move {
            loop {
                service.prune();
                tokio::select! {
                    () = service.0.stop.cancelled() => return,
                    () = tokio::time::sleep(PRUNE_INTERVAL) => {}
                }
            }
        });
    }

    /// Removes everything that is known of a delegation that has ended. Blocking.
    pub(crate) fn forget(&self, delegation: DelegationId) {
        let entry = {
            let mut entries = self.entries();
            if entries.get(&delegation).is_some_and(|entry| entry.live.is_some()) {
                return;
            }
            entries.remove(&delegation)
        };
        drop(entry);
        self.0.records.remove(delegation);
    }

    /// It has ended: releases the folder and the slot it held.
    pub(super) fn release(&self, delegation: DelegationId) {
        if let Some(entry) = self.entries().get_mut(&delegation) {
            entry.live = None;
        }
        self.schedule();
    }

    /// Starts every delegation whose turn it is.
    fn schedule(&self) {
        let limits = self.0.options.policy.limits();
        let mut entries = self.entries();
        let live = || entries.values().filter_map(|entry| entry.live.as_ref());
        let running: Vec<FolderClaim> =
            live().filter(|live| live.go.is_none()).map(|live| live.claim.clone()).collect();
        let waiting: Vec<FolderClaim> =
            live().filter(|live| live.go.is_some()).map(|live| live.claim.clone()).collect();
        let verdicts = self.0.options.scheduler.decide(&running, &waiting, limits);
        for (claim, verdict) in waiting.iter().zip(verdicts) {
            let Some(entry) = entries.get_mut(&claim.delegation) else { continue };
            let waits_for = match verdict {
                QueueDecision::Go => {
                    if let Some(go) = entry.live.as_mut().and_then(|live| live.go.take()) {
                        let _ = go.send(());
                    }
                    None
                }
                QueueDecision::Wait(reason) => Some(reason),
            };
            wait_for(entry, waits_for);
        }
    }

    pub(super) fn note(&self, delegation: DelegationId, event: &str, detail: Option<&str>) {
        let entry = AuditEntry { detail, ..AuditEntry::new(self.env().now(), event) };
        self.0.options.audit.record(delegation, &entry);
    }

    /// `delegations/<id>/before`.
    pub(super) fn before(&self, delegation: DelegationId) -> PathBuf {
        self.0.records.originals(delegation)
    }

    pub(super) async fn credentials(&self, admitted: &DelegationAdmission) -> Result<DelegationKeys, DelegatorRefusal> {
        DelegationKeys::of(&self.0.options, admitted).await
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<DelegationId, DelegationEntry>> {
        self.0.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait_for(entry: &DelegationEntry, waits_for: Option<String>) {
    entry.shown.send_if_modified(|shown| {
        let is_news = shown.waits_for != waits_for;
        shown.waits_for = waits_for;
        shown.revision += u64::from(is_news);
        is_news
    });
}

/// Runs blocking work on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, DelegatorRefusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| DelegatorRefusal::from(Error::io("a thread")(std::io::Error::other(error.to_string()))))
}
