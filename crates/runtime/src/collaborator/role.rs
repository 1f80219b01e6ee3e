//! What the borrower answers to every message of a host, whoever carries it.

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
            RemoteConstraints, RemoteMount, SSHFS, SshCredential,
        },
        runtime::DeclaredExtension,
    },
};
use attache_workspace::{
    mount::{GuardCommand, MountPoint, missing, missing_git, sweep},
    ssh,
};
use serde::Serialize;
use tokio::sync::watch;

use super::{
    BorrowedFolder, CollaboratorAuditEntry, CollaboratorAuditSink, CollaboratorPolicy, CollaboratorScheduler,
    TunnelDialer,
};

pub struct Options {
    pub policy: Arc<dyn CollaboratorPolicy>,
    pub audit: Arc<dyn CollaboratorAuditSink>,
    pub scheduler: Arc<dyn CollaboratorScheduler>,
    pub tunnels: Arc<dyn TunnelDialer>,
    /// How the process is started that owns a mount.
    pub guard: GuardCommand,
    pub env: Env,
}

/// The role. Clones are the same.
#[derive(Clone)]
pub struct Collaborator(Arc<Inner>);

struct Inner {
    options: Options,
    state: Mutex<CollaboratorState>,
}

#[derive(Default)]
struct CollaboratorState {
    assignments: AssignmentBook,
    /// Everything that has not ended.
    held: BTreeMap<AssignmentKey, AcceptedDelegation>,
}

struct AcceptedDelegation {
    /// Both until START.
    place: Option<MountPoint>,
    key: Option<Secret<String>>,
    /// The last word, once there is one.
    last: watch::Sender<Option<AwcpMessage>>,
}

/// What a message leads to.
#[derive(Debug)]
pub enum HostMessageOutcome {
    /// This is to be answered.
    Reply(AwcpMessage),
    /// Mount and work; [`Lent`] has the last word.
    Begin(Box<BorrowedFolder>),
    /// Somebody works on it already; the answer is how that ends.
    Underway(PendingOutcome),
    /// The host ended it. Whoever works on it hears so, too.
    Ended(AwcpMessage),
}

/// How a delegation ends that somebody else works on.
#[derive(Debug)]
pub struct PendingOutcome {
    last: watch::Receiver<Option<AwcpMessage>>,
    delegation: String,
}

/// What the agent's card says.
#[derive(Serialize)]
struct CardExtensionParams {
    transports: [&'static str; 1],
    max_ttl_seconds: u64,
    access_modes: Vec<attache_protocol::wire::awcp::AccessMode>,
}

// === impl Collaborator ===

impl Collaborator {
    pub fn new(options: Options) -> Self {
        Self(Arc::new(Inner { options, state: Mutex::default() }))
    }

    /// What the agent's card declares; nothing while the owner takes no folders.
    pub fn extension(&self) -> Option<DeclaredExtension> {
        let super::AdvertisedLimits { max_ttl_seconds, access_modes } = self.options().policy.terms()?;
        let params = CardExtensionParams { transports: [SSHFS], max_ttl_seconds, access_modes };
        Some(DeclaredExtension { uri: EXTENSION.to_owned(), params: Some(Json::of(&params)) })
    }

    /// Removes what earlier lives of this process left mounted. Blocks for a moment.
    pub fn sweep(&self) {
        for mount_point in sweep(&self.options().policy.roots()) {
            tracing::warn!(mount_point = %mount_point.display(), "a mount point of an earlier life was removed");
        }
    }

    /// Hears a host. `caller` is whoever was authenticated, never something that the message says. Reads files and makes
    /// folders, so it blocks for a moment.
    pub fn handle_message(&self, message: &AwcpMessage, caller: &str) -> HostMessageOutcome {
        let key = AssignmentKey { caller: caller.to_owned(), delegation: message.delegation().to_owned() };
        let now = self.env().now();
        let mut state = self.state();
        state.expire_unstarted(now, self);
        match (state.assignments.receive(&key, message, now), message) {
            (assignment::AssignmentEffect::Invited, AwcpMessage::Invite(invite)) => {
                HostMessageOutcome::Reply(self.answer(&mut state, &key, invite))
            }
            (assignment::AssignmentEffect::Begin { terms, deadline }, AwcpMessage::Start(start)) => {
                match self.begin(&mut state, &key, start) {
                    Ok((place, private_key)) => HostMessageOutcome::Begin(Box::new(BorrowedFolder::new(
                        self.clone(),
                        key.clone(),
                        state.assignments.invite(&key).cloned().expect("what begins was invited"),
                        (start.clone(), private_key, place),
                        (terms, deadline),
                        state.outcome(&key),
                    ))),
                    Err(error) => HostMessageOutcome::Reply(self.finish(&mut state, &key, AwcpMessage::Error(error))),
                }
            }
            (assignment::AssignmentEffect::Underway, _) => HostMessageOutcome::Underway(state.outcome(&key)),
            (assignment::AssignmentEffect::Ended(last), _) => {
                self.conclude(&mut state, &key, &last);
                HostMessageOutcome::Ended(last)
            }
            (assignment::AssignmentEffect::Reply(reply), _) => {
                // An end that the book has just found out.
                if state.assignments.has_ended(&key) && state.held.contains_key(&key) {
                    self.conclude(&mut state, &key, &reply);
                }
                HostMessageOutcome::Reply(reply)
            }
            // The book says these two to the two messages above, and to no other.
            (assignment::AssignmentEffect::Invited | assignment::AssignmentEffect::Begin { .. }, _) => {
                let text = "the message is out of turn";
                HostMessageOutcome::Reply(AwcpMessage::Error(AwcpError::new(
                    &key.delegation,
                    AwcpErrorCode::Declined,
                    text,
                )))
            }
        }
    }

    /// Nobody will send START any more.
    pub(crate) fn give_up(&self, caller: &str, error: AwcpError) -> AwcpMessage {
        let key = AssignmentKey { caller: caller.to_owned(), delegation: error.delegation_id.clone() };
        self.finish(&mut self.state(), &key, AwcpMessage::Error(error))
    }

    /// The first answer to an invitation.
    fn answer(&self, state: &mut CollaboratorState, key: &AssignmentKey, invite: &AwcpInvite) -> AwcpMessage {
        match self.consider(state, key, invite) {
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
    ) -> Result<AwcpMessage, AwcpError> {
        let refuse = |code, message: String| AwcpError::new(&invite.delegation_id, code, message);
        let consent = self.options().policy.consider(invite, &key.caller)?;
        let terms = consent.limits.agree(invite)?;
        if let Some(missing) = missing().first() {
            let hint = missing.fix();
            return Err(AwcpError { hint, ..refuse(AwcpErrorCode::DepMissing, missing.to_string()) });
        }
        if let Some(git) = missing_git().filter(|_| invite.requirements.wants_git()) {
            let hint = git.fix();
            return Err(AwcpError { hint, ..refuse(AwcpErrorCode::DepMissing, git.to_string()) });
        }
        let place = MountPoint::reserve(&consent.mount_roots, &invite.delegation_id, self.env())
            .map_err(|error| refuse(AwcpErrorCode::MountpointDenied, error.to_string()))?;
        let pair = ssh::make_key(self.env());
        let accept = AwcpAccept {
            delegation_id: invite.delegation_id.clone(),
            remote_mount: RemoteMount {
                mount_point: place.mount_point().display().to_string(),
                requires_empty_dir: consent.requires_empty_dir,
                client_key: Some(pair.public),
            },
            remote_constraints: Some(RemoteConstraints {
                accepted_access_mode: Some(terms.access_mode),
                max_ttl_seconds: Some(terms.ttl.as_secs()),
                sandbox_profile: Some(consent.limits.enforced),
            }),
        };
        let reply = state.assignments.accept(key, invite, accept, terms, self.env().now());
        let held = AcceptedDelegation { place: Some(place), key: Some(pair.private), last: watch::Sender::new(None) };
        state.held.insert(key.clone(), held);
        Ok(reply)
    }

    /// What START needs of what was kept, if it can be followed at all.
    fn begin(
        &self,
        state: &mut CollaboratorState,
        key: &AssignmentKey,
        start: &AwcpStart,
    ) -> Result<(MountPoint, Secret<String>), AwcpError> {
        let refuse = |code, message: &str| AwcpError::new(&key.delegation, code, message);
        let held = state.held.get_mut(key);
        let Some((place, own)) = held.and_then(|held| Some((held.place.take()?, held.key.take()?))) else {
            return Err(refuse(AwcpErrorCode::StartExpired, "nothing is prepared for this START any more"));
        };
        let is_lost = |secret: &Secret<String>| secret.expose() == REDACTED;
        let lost = "a secret of START was handed over before and cannot be read a second time";
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
        if start.mount.transport != SSHFS {
            let text = format!("START wants `{}`, and this machine mounts by `{SSHFS}` only", start.mount.transport);
            return Err(refuse(AwcpErrorCode::MountFailed, &text));
        }
        if start.mount.host_key.is_none() {
            let text = "START pins no `host_key`, and a server that cannot be recognised is not spoken to";
            return Err(refuse(AwcpErrorCode::MountFailed, text));
        }
        Ok((place, private_key))
    }

    /// The last word on a delegation; the first one counts.
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

    /// Tells everybody here who should know.
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
    /// Ends what nobody started in time, so that no mount point waits for ever.
    fn expire_unstarted(&mut self, now: attache_protocol::Timestamp, role: &Collaborator) {
        let is_late = |(key, held): &(&AssignmentKey, &AcceptedDelegation)| {
            held.place.is_some() && self.assignments.deadline(key).is_none_or(|deadline| now >= deadline)
        };
        let late: Vec<AssignmentKey> = self.held.iter().filter(is_late).map(|(key, _)| key.clone()).collect();
        for key in late {
            let text = "nobody sent START while the invitation was open";
            role.finish(self, &key, AwcpMessage::Error(AwcpError::new(&key.delegation, AwcpErrorCode::Expired, text)));
        }
    }

    fn outcome(&self, key: &AssignmentKey) -> PendingOutcome {
        let delegation = key.delegation.clone();
        let last = self.held.get(key).map_or_else(|| watch::channel(None).1, |held| held.last.subscribe());
        PendingOutcome { last, delegation }
    }

    /// Wakes whoever works on it or waits for it, and forgets the rest.
    fn close(&mut self, key: &AssignmentKey, last: &AwcpMessage) {
        if let Some(held) = self.held.remove(key) {
            held.last.send_replace(Some(last.clone()));
        }
    }
}

// === impl PendingOutcome ===

impl PendingOutcome {
    /// Waits for the last word.
    pub async fn final_message(&mut self) -> AwcpMessage {
        match self.last.wait_for(Option::is_some).await {
            Ok(last) => last.clone().expect("it was waited for"),
            Err(_) => {
                let text = "whoever worked on it is gone";
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
