//! What a delegator of the reference implementation talks to, behind its routes. Each task becomes a delegation of a
//! folder on this machine to one agent, with the key that came with the invitation, so that the hub and the collaborator
//! decide about it like about any other.

use std::{
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use attache_os::{private_file, removal};
use attache_protocol::{
    Secret, digest,
    env::Env,
    rules::delegation::{DelegationStatus, LeaseTerms},
    wire::{
        awcp::{ARCHIVE, AwcpErrorCode},
        base64,
        delegation::{DelegateRequest, Delegation},
    },
};
use attache_workspace::archive::{self, ArchiveError, ArchiveLimits, ZipArchive};
use axum::http::StatusCode;
use tokio::{
    net::TcpListener,
    sync::{Notify, Semaphore, oneshot, watch},
};

use super::{
    assignment::{AssignmentHome, CompatAssignment, CompatProgress},
    assignment_table::AssignmentTable,
    messages::{CompatAccept, CompatConstraints, CompatDone, CompatFailure, CompatInvite, CompatStart, CompatWorkDir},
    request_guard::MAX_ARCHIVES,
    routes, server,
};
use crate::{
    awcp_policy::{
        TrustedPeer,
        delegator::{ExportSection, GitPolicySection},
    },
    delegator::{DelegationAdmission, DelegatorService},
};

/// Where tasks go, and where their folders are.
#[derive(Debug, Clone)]
pub struct CompatOptions {
    /// The agent that works on them.
    pub agent: TrustedPeer,
    /// A folder of its own, outside `$AWCP_HOME`: nothing in there can be delegated.
    pub folder: PathBuf,
}

/// Clones share the same state.
#[derive(Clone)]
pub struct CompatEndpoint(Arc<EndpointShared>);

struct EndpointShared {
    options: CompatOptions,
    service: DelegatorService,
    assignments: Mutex<AssignmentTable>,
    /// Places for messages with an archive.
    archives: Arc<Semaphore>,
}

/// The place of an assignment that is being prepared. Dropping it gives it back.
struct AssignmentReservation<'a> {
    endpoint: &'a CompatEndpoint,
    id: &'a str,
}

/// A refusal before there is anything to report events of.
pub(super) struct EndpointRefusal(pub(super) StatusCode, pub(super) String);

/// How many tasks are in which state.
pub(super) struct EndpointCounts {
    pub(super) pending: usize,
    pub(super) active: usize,
    pub(super) ended: usize,
}

/// The other side waits 30 seconds for an answer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(25);
const POLL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an unacknowledged result is kept.
const MAX_RETENTION: Duration = Duration::from_secs(3600);
/// There is nothing to fetch.
const FAILURE_RETENTION: Duration = Duration::from_secs(300);
/// An id is all that later requests have, so it must not be easy to guess.
const ID_LENGTHS: std::ops::RangeInclusive<usize> = 16..=128;

// === impl CompatEndpoint ===

impl CompatEndpoint {
    /// Removes what an earlier process left in the folder. Blocks briefly.
    pub fn new(service: DelegatorService, options: CompatOptions) -> io::Result<Self> {
        private_file::folder(&options.folder)?;
        removal::empty(&options.folder)?;
        let archives = Arc::new(Semaphore::new(MAX_ARCHIVES));
        Ok(Self(Arc::new(EndpointShared { options, service, assignments: Mutex::default(), archives })))
    }

    /// Answers delegators until it is dropped. Their messages contain keys and aren't encrypted, so it is for loopback addresses.
    pub async fn serve(self, listener: TcpListener) {
        server::serve(listener, routes::router(self)).await;
    }

    fn assignments(&self) -> MutexGuard<'_, AssignmentTable> {
        self.0.assignments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn archives(&self) -> &Arc<Semaphore> {
        &self.0.archives
    }

    pub(super) fn env(&self) -> &Env {
        self.0.service.env()
    }

    pub(super) fn counts(&self) -> EndpointCounts {
        let mut counts = EndpointCounts { pending: 0, active: 0, ended: 0 };
        for assignment in self.assignments().iter() {
            match &*assignment.progress.borrow() {
                CompatProgress::Pending(_) => counts.pending += 1,
                CompatProgress::Active(_) => counts.active += 1,
                CompatProgress::Completed(..) | CompatProgress::Failed(..) => counts.ended += 1,
            }
        }
        counts
    }

    pub(super) fn find(&self, id: &str) -> Result<Arc<CompatAssignment>, EndpointRefusal> {
        let found = self.assignments().get(id).cloned();
        found.ok_or_else(|| EndpointRefusal(StatusCode::NOT_FOUND, format!("Delegation not found: {id}")))
    }

    /// The answer to INVITE: the terms of the agent, or why it doesn't accept.
    pub(super) async fn invite(&self, id: &str, invite: &CompatInvite) -> Result<CompatAccept, CompatFailure> {
        invite.check()?;
        let refuse = |code, message: &str| CompatFailure::of(code, message);
        let declined = |message: &str| refuse(AwcpErrorCode::Declined, message);
        let is_id = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
        if !ID_LENGTHS.contains(&id.len()) || !id.chars().all(is_id) {
            return Err(declined("the delegationId must have 16 to 128 letters, digits, - and _"));
        }
        let credential = invite.auth.as_ref().map(|auth| auth.credential.trim()).filter(|key| !key.is_empty());
        let Some(credential) = credential.filter(|key| !key.contains(char::is_whitespace)) else {
            let message = "INVITE.auth is missing: its credential is a key for the agent's hub";
            return Err(refuse(AwcpErrorCode::AuthFailed, message));
        };
        let credential = Secret::new(credential.to_owned());
        let earlier = self.assignments().get(id).cloned();
        if let Some(earlier) = earlier {
            if earlier.credential.expose() != credential.expose() {
                return Err(declined("this delegationId is in use"));
            }
            // The other side lost its connection or its memory, and begins again.
            let _ = self.0.service.cancel(earlier.delegation).await;
            earlier.acknowledged.notify_one();
            self.assignments().remove(id, &earlier);
        }
        // Before anything is waited for: others are invited meanwhile.
        self.assignments().reserve(id).map_err(|why| declined(&why.to_string()))?;
        let place = AssignmentReservation { endpoint: self, id };
        let local = |error: &dyn fmt::Display| {
            tracing::error!(%error, "can't prepare a folder for a delegation");
            refuse(AwcpErrorCode::MountFailed, "there is no place for the folder on this machine")
        };
        let unique = self.0.service.env().random_hex::<8>();
        let path = self.0.options.folder.join(format!("{}-{unique}", &digest::of_text(id)[..12]));
        let folders = AssignmentHome::create(path).map_err(|error| local(&error))?;
        private_file::write(&folders.key(), credential.expose().as_bytes()).map_err(|error| local(&error))?;
        let resources: Vec<String> = invite.environment.resources.iter().map(|it| it.name.clone()).collect();
        let (open, gate) = oneshot::channel();
        let (request, admitted) = self.delegation_of(invite, &folders).map_err(|error| local(&error))?;
        let delegation = self.0.service.delegate_made(request, admitted, gate).await;
        let delegation = delegation.map_err(|refused| declined(&refused.message))?.delegation_id;
        let pending = CompatProgress::Pending(Arc::new(Mutex::new(Some(open))));
        let assignment = Arc::new(CompatAssignment {
            credential,
            delegation,
            folders,
            resources,
            progress: watch::Sender::new(pending),
            is_accepted: AtomicBool::new(false),
            acknowledged: Notify::new(),
        });
        self.assignments().fill(id, Arc::clone(&assignment));
        drop(place);
        let retention = Duration::from_millis(invite.retention_ms).min(MAX_RETENTION);
        self.0.service.own(self.clone().follow(id.to_owned(), Arc::clone(&assignment), retention));
        match self.accepted(&assignment).await {
            Ok(shown) => {
                assignment.is_accepted.store(true, Ordering::Release);
                self.assignments().make_room();
                Ok(CompatAccept {
                    retention_ms: u64::try_from(retention.as_millis()).unwrap_or(u64::MAX),
                    executor_work_dir: CompatWorkDir { path: shown.remote_mount_point.unwrap_or_default() },
                    executor_constraints: Some(CompatConstraints {
                        accepted_access_mode: Some(shown.access_mode),
                        max_ttl_seconds: Some(shown.ttl_seconds),
                        sandbox_profile: shown.sandbox.map(Into::into),
                    }),
                })
            }
            Err(failure) => {
                let _ = self.0.service.cancel(delegation).await;
                assignment.acknowledged.notify_one();
                Err(failure)
            }
        }
    }

    /// Our delegation for an invitation.
    fn delegation_of(
        &self,
        invite: &CompatInvite,
        folders: &AssignmentHome,
    ) -> io::Result<(DelegateRequest, DelegationAdmission)> {
        // One resource is the agent's folder; of several, each is a folder in it.
        let folder = match &invite.environment.resources[..] {
            [one] => folders.work().join(&one.name),
            _ => folders.work(),
        };
        private_file::folder(&folder)?;
        let folder = folder.canonicalize()?;
        let request = DelegateRequest {
            description: invite.task.description.clone(),
            prompt: invite.task.prompt.clone(),
            peer_url: self.0.options.agent.url.clone(),
            workspace_dir: folder.to_string_lossy().into_owned(),
            ttl_seconds: Some(invite.lease.ttl_seconds),
            access_mode: Some(invite.access_mode()),
            session_id: None,
            include: Vec::new(),
            exclude: Vec::new(),
            transport: None,
            key_file: None,
            awcp_compat: false,
            staged: false,
        };
        let terms =
            LeaseTerms { access_mode: invite.access_mode(), ttl: Duration::from_secs(invite.lease.ttl_seconds) };
        let admitted = DelegationAdmission {
            peer: self.0.options.agent.clone(),
            folder,
            terms,
            export: ExportSection::default(),
            git: GitPolicySection::default(),
            key_file: Some(folders.key()),
            hub: None,
            hub_pin: None,
        };
        Ok((request, admitted))
    }

    /// Waits until the agent has answered.
    async fn accepted(&self, assignment: &CompatAssignment) -> Result<Delegation, CompatFailure> {
        let answered = async {
            let mut after = 0;
            loop {
                let shown = self.0.service.wait(assignment.delegation, after, ACCEPT_TIMEOUT).await;
                let shown = shown.map_err(|refused| CompatFailure::of(AwcpErrorCode::TaskFailed, refused.message))?;
                match shown.status {
                    DelegationStatus::Created | DelegationStatus::Invited => after = shown.revision,
                    DelegationStatus::Accepted => return Ok(shown),
                    _ => return Err(failure_of(&shown)),
                }
            }
        };
        tokio::time::timeout(ACCEPT_TIMEOUT, answered).await.unwrap_or_else(|_| {
            let message = "the agent didn't answer in time; its device may be offline or busy";
            Err(CompatFailure::of(AwcpErrorCode::Declined, message))
        })
    }

    /// Whether this delegation was accepted and waits for its folder.
    pub(super) fn check_startable(&self, id: &str) -> Result<(), EndpointRefusal> {
        let assignment = self.find(id)?;
        let is_pending = matches!(*assignment.progress.borrow(), CompatProgress::Pending(_));
        if is_pending && assignment.is_accepted.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(EndpointRefusal(
            StatusCode::CONFLICT,
            format!("Delegation {id} was not accepted, was started, or has ended"),
        ))
    }

    /// START: fills the folder, and lets the agent begin.
    pub(super) async fn start(&self, id: &str, start: CompatStart) -> Result<(), EndpointRefusal> {
        self.check_startable(id)?;
        let assignment = self.find(id)?;
        let gate = match &*assignment.progress.borrow() {
            CompatProgress::Pending(gate) => gate.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        let Some(gate) = gate else {
            return Err(EndpointRefusal(StatusCode::CONFLICT, format!("Delegation {id} was started or has ended")));
        };
        let filling = Arc::clone(&assignment);
        let filled = tokio::task::spawn_blocking(move || fill(&filling, &start)).await;
        let filled = filled.unwrap_or_else(|error| Err((AwcpErrorCode::MountFailed.as_str(), error.to_string())));
        if let Err((code, message)) = filled {
            // Without the gate, the delegation ends. This is why.
            let failure = CompatFailure { code: code.to_owned(), message: message.clone(), hint: None };
            self.end(&assignment, CompatProgress::Failed(failure, self.0.service.env().now()));
            drop(gate);
            return Err(EndpointRefusal(StatusCode::BAD_REQUEST, message));
        }
        assignment.progress.send_if_modified(|progress| match progress {
            CompatProgress::Pending(_) => {
                *progress = CompatProgress::Active(None);
                true
            }
            _ => false,
        });
        let _ = gate.send(());
        Ok(())
    }

    pub(super) async fn cancel(&self, id: &str) -> Result<(), EndpointRefusal> {
        let assignment = self.find(id)?;
        if assignment.has_ended() {
            return Err(EndpointRefusal(StatusCode::CONFLICT, format!("Delegation {id} has ended")));
        }
        let failure = CompatFailure::of(AwcpErrorCode::Cancelled, "Delegation cancelled");
        self.end(&assignment, CompatProgress::Failed(failure, self.env().now()));
        let _ = self.0.service.cancel(assignment.delegation).await;
        Ok(())
    }

    /// Follows one task to its end, and removes everything once its result was acknowledged or its time is over.
    async fn follow(self, id: String, assignment: Arc<CompatAssignment>, retention: Duration) {
        let service = &self.0.service;
        let mut after = 0;
        let shown = loop {
            match service.wait(assignment.delegation, after, POLL_TIMEOUT).await {
                Ok(shown) if shown.status.has_ended() => break Some(shown),
                Ok(shown) => {
                    after = shown.revision;
                    let news = shown.progress.or(shown.waits_for);
                    assignment.progress.send_if_modified(|progress| match progress {
                        CompatProgress::Active(known) if *known != news => {
                            known.clone_from(&news);
                            true
                        }
                        _ => false,
                    });
                }
                Err(_) => break None,
            }
        };
        let (now, work) = (service.env().now(), Arc::clone(&assignment));
        let last = match shown {
            Some(shown) if shown.status == DelegationStatus::Completed => {
                let packed = tokio::task::spawn_blocking(move || pack(&work)).await;
                match packed.map_err(|error| error.to_string()).and_then(|done| done.map_err(|it| it.to_string())) {
                    Ok(()) => CompatProgress::Completed(done_of(shown), now),
                    Err(error) => {
                        let message = format!("the result can't be packed: {error}");
                        CompatProgress::Failed(CompatFailure::of(AwcpErrorCode::TaskFailed, message), now)
                    }
                }
            }
            Some(shown) => CompatProgress::Failed(failure_of(&shown), now),
            None => CompatProgress::Failed(CompatFailure::of(AwcpErrorCode::TaskFailed, "it was lost"), now),
        };
        // Only the result is kept, and not for long: it is the other side's.
        let retention = match last {
            CompatProgress::Completed(..) => retention,
            _ => retention.min(FAILURE_RETENTION),
        };
        let (forgetting, ended) = (service.clone(), Arc::clone(&assignment));
        let _ = tokio::task::spawn_blocking(move || {
            ended.folders.clear();
            forgetting.forget(ended.delegation);
        })
        .await;
        self.end(&assignment, last);
        tokio::select! {
            () = assignment.acknowledged.notified() => {}
            () = tokio::time::sleep(retention) => {}
            () = service.stopped() => {}
        }
        self.assignments().remove(&id, &assignment);
        let _ = tokio::task::spawn_blocking(move || drop(assignment)).await;
    }

    /// The first end counts.
    fn end(&self, assignment: &CompatAssignment, last: CompatProgress) {
        assignment.progress.send_if_modified(|progress| {
            let is_first = !progress.has_ended();
            if is_first {
                *progress = last;
            }
            is_first
        });
    }
}

// === impl AssignmentReservation ===

impl Drop for AssignmentReservation<'_> {
    fn drop(&mut self) {
        self.endpoint.assignments().release(self.id);
    }
}

fn done_of(shown: Delegation) -> CompatDone {
    let result = shown.result;
    let (summary, highlights) =
        result.map_or_else(Default::default, |it| (it.final_summary.unwrap_or_default(), it.highlights));
    let id = format!("snap_{}", shown.delegation_id.uuid().simple());
    CompatDone {
        summary,
        highlights: Some(highlights).filter(|highlights| !highlights.is_empty()),
        snapshot_ids: Some(vec![id.clone()]),
        recommended_snapshot_id: Some(id),
    }
}

fn failure_of(shown: &Delegation) -> CompatFailure {
    let failure = shown.result.as_ref().and_then(|result| result.error.clone());
    failure.map_or_else(
        || CompatFailure::of(AwcpErrorCode::TaskFailed, format!("the delegation is {}", shown.status)),
        CompatFailure::from,
    )
}

/// Unpacks the archive of START. Blocking.
fn fill(assignment: &CompatAssignment, start: &CompatStart) -> Result<(), (&'static str, String)> {
    const INVALID: &str = "SETUP_FAILED";
    let handle = &start.transport_handle;
    if handle.transport != ARCHIVE {
        return Err((INVALID, "only the transport `archive` is supported".to_owned()));
    }
    let bytes = base64::decode(&handle.workspace_base64).ok_or((INVALID, "workspaceBase64 isn't base64".to_owned()))?;
    let checksum = archive::checksum(&bytes);
    if !checksum.eq_ignore_ascii_case(&handle.checksum) {
        let text = format!("Checksum mismatch: expected {}, got {checksum}", handle.checksum);
        return Err(("CHECKSUM_MISMATCH", text));
    }
    // The other side may have cancelled, or the lease is over.
    let has_ended = || assignment.has_ended();
    let unpacked = ZipArchive::read(&bytes, ArchiveLimits::default(), &has_ended).and_then(|archive| {
        let names = assignment.resources.iter().cloned().collect();
        archive::unpack(&archive, &assignment.folders.work(), &names, &assignment.folders.staging(), &has_ended)
    });
    unpacked.map_err(|error| (INVALID, error.to_string()))
}

/// Packs what goes back, for as long as it is asked for. Blocking.
fn pack(assignment: &CompatAssignment) -> Result<(), ArchiveError> {
    let packed = archive::pack(&assignment.folders.work(), "", ArchiveLimits::default(), &|| assignment.has_ended())?;
    private_file::write(&assignment.folders.result(), &packed.archive)?;
    Ok(())
}

/// The archive of a result, in base64. Blocking.
pub(super) fn snapshot(assignment: &CompatAssignment) -> Option<String> {
    std::fs::read(assignment.folders.result()).ok().map(|archive| base64::encode(&archive))
}

impl fmt::Debug for CompatEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompatEndpoint").field("options", &self.0.options).finish_non_exhaustive()
    }
}
