//! The collaborator's answers to the messages of a host, independent of the transport.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use attache_protocol::{
    Json, Secret,
    env::Env,
    rules::assignment::{self, AssignmentBook, AssignmentKey},
    wire::{
        awcp::{
            AwcpAccept, AwcpError, AwcpErrorCode, AwcpInvite, AwcpMessage, AwcpStart, EXTENSION, REDACTED,
            RemoteConstraints, RemoteMount, SSHFS, SandboxProfile, SandboxProof, SshCredential, TransportChoice,
        },
        runtime::DeclaredExtension,
    },
};
use attache_workspace::{
    mount::{GuardCommand, MountPoint, MountTransport, missing_git, sweep},
    ssh,
};
use serde::Serialize;
use tokio::sync::watch;

use super::{
    BorrowedFolder, CollaboratorAuditEntry, CollaboratorAuditSink, CollaboratorPolicy, CollaboratorScheduler,
    DirectDialGuard, TunnelDialer,
};

pub struct Options {
    pub policy: Arc<dyn CollaboratorPolicy>,
    pub audit: Arc<dyn CollaboratorAuditSink>,
    pub scheduler: Arc<dyn CollaboratorScheduler>,
    pub tunnels: Arc<dyn TunnelDialer>,
    /// The hosts that it connects to without a tunnel.
    pub direct: DirectDialGuard,
    /// The command that starts the process which owns a mount.
    pub guard: GuardCommand,
    pub env: Env,
}

/// The walls that this machine can put around the agent's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWalls {
    pub available: SandboxProfile,
    pub proof: Option<SandboxProof>,
}

/// The role. Clones share the same state.
#[derive(Clone)]
pub struct Collaborator(Arc<CollaboratorShared>);

struct CollaboratorShared {
    options: Options,
    state: Mutex<CollaboratorState>,
}

#[derive(Default)]
struct CollaboratorState {
    assignments: AssignmentBook,
    /// Every accepted delegation that has not ended.
    held: BTreeMap<AssignmentKey, AcceptedDelegation>,
}

struct AcceptedDelegation {
    /// Both are taken at START.
    place: Option<MountPoint>,
    key: Option<Secret<String>>,
    /// The limits that the work gets.
    sandbox: SandboxProfile,
    /// How the folder can get here.
    transports: Vec<MountTransport>,
    /// The final message, once there is one.
    last: watch::Sender<Option<AwcpMessage>>,
}

/// The outcome of a message.
#[derive(Debug)]
pub enum DelegatorMessageOutcome {
    /// Send this reply.
    Reply(AwcpMessage),
    /// Mount the folder and work in it. The [`BorrowedFolder`] gives the final message.
    Begin(Box<BorrowedFolder>),
    /// Work is already in progress. Wait for its outcome.
    Underway(PendingOutcome),
    /// The host ended it. Whoever works on it is notified as well.
    Ended(AwcpMessage),
}

/// The outcome of a delegation that is already in progress.
#[derive(Debug)]
pub struct PendingOutcome {
    last: watch::Receiver<Option<AwcpMessage>>,
    delegation: String,
}

/// The parameters of the extension on the agent's card.
#[derive(Serialize)]
struct CardExtensionParams {
    transports: [&'static str; 1],
    max_ttl_seconds: u64,
    access_modes: Vec<attache_protocol::wire::awcp::AccessMode>,
}

/// What the host offers and the owner of this machine allows, best first.
fn possible_transports(invite: &AwcpInvite, allowed: &[TransportChoice]) -> Vec<MountTransport> {
    let is_allowed = |transport: &MountTransport| allowed.iter().any(|choice| choice.wire_name() == transport.name());
    let is_possible =
        |transport: &MountTransport| invite.requirements.offers(transport.name()) && is_allowed(transport);
    MountTransport::ALL.into_iter().filter(is_possible).collect()
}

// === impl RemoteWalls ===

impl Default for RemoteWalls {
    fn default() -> Self {
        Self { available: SandboxProfile::NOTHING, proof: None }
    }
}

// === impl Collaborator ===

impl Collaborator {
    pub fn new(options: Options) -> Self {
        Self(Arc::new(CollaboratorShared { options, state: Mutex::default() }))
    }

    /// The extension for the agent's card. `None` while the owner accepts no folders.
    pub fn extension(&self) -> Option<DeclaredExtension> {
        let super::AdvertisedLimits { max_ttl_seconds, access_modes } = self.options().policy.terms()?;
        let params = CardExtensionParams { transports: [SSHFS], max_ttl_seconds, access_modes };
        Some(DeclaredExtension { uri: EXTENSION.to_owned(), params: Some(Json::of(&params)) })
    }

    /// Removes mounts that earlier processes left behind. Blocks briefly.
    pub fn sweep(&self) {
        for mount_point in sweep(&self.options().policy.roots()) {
            tracing::warn!(mount_point = %mount_point.display(), "removed a mount point of an earlier process");
        }
    }

    /// Handles a message of a host. `caller` is the authenticated caller, never taken from the message. Reads files and
    /// creates folders, so it blocks briefly.
    pub fn handle_message(&self, message: &AwcpMessage, caller: &str, walls: &RemoteWalls) -> DelegatorMessageOutcome {
        let key = AssignmentKey { caller: caller.to_owned(), delegation: message.delegation().to_owned() };
        let now = self.env().now();
        let mut state = self.state();
        state.expire_unstarted(now, self);
        match (state.assignments.receive(&key, message, now), message) {
            (assignment::AssignmentEffect::Invited, AwcpMessage::Invite(invite)) => {
                DelegatorMessageOutcome::Reply(self.answer(&mut state, &key, invite, walls))
            }
            (assignment::AssignmentEffect::Begin { terms, deadline }, AwcpMessage::Start(start)) => {
                match self.begin(&mut state, &key, start) {
                    Ok((place, private_key, sandbox)) => DelegatorMessageOutcome::Begin(Box::new(BorrowedFolder::new(
                        self.clone(),
                        key.clone(),
                        state.assignments.invite(&key).cloned().expect("a started delegation has an invitation"),
                        (start.clone(), private_key, place),
                        (terms, deadline, sandbox),
                        state.outcome(&key),
                    ))),
                    Err(error) => {
                        DelegatorMessageOutcome::Reply(self.finish(&mut state, &key, AwcpMessage::Error(error)))
                    }
                }
            }
            (assignment::AssignmentEffect::Underway, _) => DelegatorMessageOutcome::Underway(state.outcome(&key)),
            (assignment::AssignmentEffect::Ended(last), _) => {
                self.conclude(&mut state, &key, &last);
                DelegatorMessageOutcome::Ended(last)
            }
            (assignment::AssignmentEffect::Reply(reply), _) => {
                // The rules found that the delegation had ended.
                if state.assignments.has_ended(&key) && state.held.contains_key(&key) {
                    self.conclude(&mut state, &key, &reply);
                }
                DelegatorMessageOutcome::Reply(reply)
            }
            // These effects answer only the two messages above.
            (assignment::AssignmentEffect::Invited | assignment::AssignmentEffect::Begin { .. }, _) => {
                let text = "unexpected message";
                DelegatorMessageOutcome::Reply(AwcpMessage::Error(AwcpError::new(
                    &key.delegation,
                    AwcpErrorCode::Declined,
                    text,
                )))
            }
        }
    }

    /// Gives up waiting for START.
    pub fn give_up(&self, caller: &str, error: AwcpError) -> AwcpMessage {
        let key = AssignmentKey { caller: caller.to_owned(), delegation: error.delegation_id.clone() };
        self.finish(&mut self.state(), &key, AwcpMessage::Error(error))
    }

    /// Answers a new invitation.
    fn answer(
        &self,
        state: &mut CollaboratorState,
        key: &AssignmentKey,
        invite: &AwcpInvite,
        walls: &RemoteWalls,
    ) -> AwcpMessage {
        match self.consider(state, key, invite, walls) {
            Ok(accept) => {
                self.record(key, |entry| entry, "accept");
                accept
            }
            Err(error) => self.finish(state, key, AwcpMessage::Error(error)),
        }
    }

    fn consider(
        &self,
        state: &mut CollaboratorState,
        key: &AssignmentKey,
        invite: &AwcpInvite,
        walls: &RemoteWalls,
    ) -> Result<AwcpMessage, AwcpError> {
        let refuse = |code, message: String| AwcpError::new(&invite.delegation_id, code, message);
        let consent = self.options().policy.consider(invite, &key.caller, walls.available)?;
        let terms = consent.limits.agree(invite)?;
        let possible = possible_transports(invite, &consent.transports);
        let transports: Vec<MountTransport> =
            possible.iter().copied().filter(|transport| transport.missing().is_empty()).collect();
        if transports.is_empty() {
            return Err(match possible.last().and_then(|least| least.missing().into_iter().next()) {
                Some(missing) => {
                    let hint = missing.fix();
                    AwcpError { hint, ..refuse(AwcpErrorCode::DepMissing, missing.to_string()) }
                }
                None => refuse(AwcpErrorCode::Declined, "this machine supports none of the offered mounts".to_owned()),
            });
        }
        if let Some(git) = missing_git().filter(|_| invite.requirements.wants_git()) {
            let hint = git.fix();
            return Err(AwcpError { hint, ..refuse(AwcpErrorCode::DepMissing, git.to_string()) });
        }
        let place = MountPoint::reserve(&consent.mount_roots, &invite.delegation_id, self.env())
            .map_err(|error| refuse(AwcpErrorCode::MountpointDenied, error.to_string()))?;
        let (pair, sandbox) = (ssh::make_key(self.env()), consent.limits.wanted);
        let accept = AwcpAccept {
            delegation_id: invite.delegation_id.clone(),
            remote_mount: RemoteMount {
                mount_point: place.mount_point().display().to_string(),
                requires_empty_dir: consent.requires_empty_dir,
                client_key: Some(pair.public),
                transports: transports.iter().map(|it| it.name().to_owned()).collect(),
            },
            remote_constraints: Some(RemoteConstraints {
                accepted_access_mode: Some(terms.access_mode),
                max_ttl_seconds: Some(terms.ttl.as_secs()),
                sandbox_profile: Some(sandbox),
                sandbox_proof: walls.proof.clone().filter(|_| sandbox != SandboxProfile::NOTHING),
            }),
        };
        let reply = state.assignments.accept(key, invite, accept, terms, self.env().now());
        let (place, pair) = (Some(place), Some(pair.private));
        let held = AcceptedDelegation { place, key: pair, sandbox, transports, last: watch::Sender::new(None) };
        state.held.insert(key.clone(), held);
        Ok(reply)
    }

    /// What START needs: the reserved mount point and the private key, or why it can't be followed.
    fn begin(
        &self,
        state: &mut CollaboratorState,
        key: &AssignmentKey,
        start: &AwcpStart,
    ) -> Result<(MountPoint, Secret<String>, SandboxProfile), AwcpError> {
        let refuse = |code, message: &str| AwcpError::new(&key.delegation, code, message);
        let held = state.held.get_mut(key);
        let taken = held.and_then(|held| {
            Some((held.place.take()?, held.key.take()?, held.sandbox, std::mem::take(&mut held.transports)))
        });
        let Some((place, own, sandbox, transports)) = taken else {
            return Err(refuse(
                AwcpErrorCode::StartExpired,
                "this START is too late: its mount point has been released",
            ));
        };
        let is_lost = |secret: &Secret<String>| secret.expose() == REDACTED;
        let lost = "a secret of START was already read once and can't be read again";
        if start.mount.endpoint.tunnel.as_ref().is_some_and(|tunnel| is_lost(&tunnel.token)) {
            return Err(refuse(AwcpErrorCode::AuthFailed, lost));
        }
        let private_key = match &start.mount.credential {
            SshCredential::ClientKey => own,
            SshCredential::PrivateKey { private_key } if is_lost(private_key) => {
                return Err(refuse(AwcpErrorCode::AuthFailed, lost));
            }
            SshCredential::PrivateKey { private_key } => private_key.clone(),
        };
        if MountTransport::named(&start.mount.transport).is_none_or(|transport| !transports.contains(&transport)) {
            let text =
                format!("START asks for the transport `{}`, which this machine doesn't support", start.mount.transport);
            return Err(refuse(AwcpErrorCode::MountFailed, &text));
        }
        if start.mount.host_key.is_none() {
            let text = "START has no `host_key`, so the server can't be verified";
            return Err(refuse(AwcpErrorCode::MountFailed, text));
        }
        Ok((place, private_key, sandbox))
    }

    /// Ends the delegation with a final message. The first one counts.
    pub(super) fn end(&self, key: &AssignmentKey, last: AwcpMessage) -> AwcpMessage {
        self.finish(&mut self.state(), key, last)
    }

    fn finish(&self, state: &mut CollaboratorState, key: &AssignmentKey, last: AwcpMessage) -> AwcpMessage {
        let had_ended = state.assignments.has_ended(key);
        let last = state.assignments.end(key, last);
        if !had_ended {
            self.conclude(state, key, &last);
        }
        last
    }

    /// Wakes everyone who waits for the end, and records it.
    fn conclude(&self, state: &mut CollaboratorState, key: &AssignmentKey, last: &AwcpMessage) {
        state.close(key, last);
        match last {
            AwcpMessage::Error(error) => self.record(key, |entry| entry.code(error.code, &error.message), "error"),
            _ => self.record(key, |entry| entry, "done"),
        }
    }

    pub(super) fn record(
        &self,
        key: &AssignmentKey,
        fill: impl FnOnce(CollaboratorAuditEntry<'_>) -> CollaboratorAuditEntry<'_>,
        event: &'static str,
    ) {
        let entry = CollaboratorAuditEntry::new(self.env().now(), (&key.caller, &key.delegation), event);
        self.options().audit.record(&fill(entry));
    }

    pub(super) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(super) fn env(&self) -> &Env {
        &self.0.options.env
    }

    fn state(&self) -> MutexGuard<'_, CollaboratorState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Collaborator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collaborator").field("policy", &self.options().policy).finish_non_exhaustive()
    }
}

// === impl CollaboratorState ===

impl CollaboratorState {
    /// Ends accepted delegations that weren't started in time, so that their mount points are freed.
    fn expire_unstarted(&mut self, now: attache_protocol::Timestamp, role: &Collaborator) {
        let is_late = |(key, held): &(&AssignmentKey, &AcceptedDelegation)| {
            held.place.is_some() && self.assignments.deadline(key).is_none_or(|deadline| now >= deadline)
        };
        let late: Vec<AssignmentKey> = self.held.iter().filter(is_late).map(|(key, _)| key.clone()).collect();
        for key in late {
            let text = "START did not arrive before the invitation expired";
            role.finish(self, &key, AwcpMessage::Error(AwcpError::new(&key.delegation, AwcpErrorCode::Expired, text)));
        }
    }

    fn outcome(&self, key: &AssignmentKey) -> PendingOutcome {
        let delegation = key.delegation.clone();
        let last = self.held.get(key).map_or_else(|| watch::channel(None).1, |held| held.last.subscribe());
        PendingOutcome { last, delegation }
    }

    /// Wakes those who work on it or wait for it, and drops the rest.
    fn close(&mut self, key: &AssignmentKey, last: &AwcpMessage) {
        if let Some(held) = self.held.remove(key) {
            held.last.send_replace(Some(last.clone()));
        }
    }
}

// === impl PendingOutcome ===

impl PendingOutcome {
    /// Waits for the final message.
    pub async fn final_message(&mut self) -> AwcpMessage {
        match self.last.wait_for(Option::is_some).await {
            Ok(last) => last.clone().expect("`wait_for` returned, so there is a message"),
            Err(_) => {
                let text = "the collaborator stopped working on it";
                AwcpMessage::Error(AwcpError::new(&self.delegation, AwcpErrorCode::TaskFailed, text))
            }
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("policy", &self.policy).field("guard", &self.guard).finish_non_exhaustive()
    }
}
