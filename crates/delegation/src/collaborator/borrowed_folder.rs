//! A folder borrowed from a host: from START until the delegation ends.

use std::{path::PathBuf, time::Duration};

use attache_protocol::{
    Secret, Timestamp,
    rules::{assignment::AssignmentKey, delegation::LeaseTerms},
    wire::{
        awcp::{AccessMode, AwcpDone, AwcpError, AwcpErrorCode, AwcpInvite, AwcpMessage, AwcpStart, SandboxProfile},
        output::OutputLocation,
    },
};
use attache_workspace::mount::{
    self, LostChange, MountError, MountHandle, MountPoint, MountRequest, MountSummary, MountTransport, PortForward,
    UnmountReason,
};
use tokio::time::Instant;

use super::{Collaborator, PendingOutcome, SchedulerPermit};

/// Dropping it unmounts the folder and reports to the host that the work was abandoned.
#[derive(Debug)]
pub struct BorrowedFolder {
    role: Collaborator,
    key: AssignmentKey,
    invite: AwcpInvite,
    terms: LeaseTerms,
    sandbox: SandboxProfile,
    deadline: Timestamp,
    /// The same deadline on the monotonic clock.
    ends: Instant,
    /// Remarks about the mount for the host.
    notes: Option<String>,
    mount_point: PathBuf,
    /// `None` once mounted.
    started: Option<(AwcpStart, Secret<String>, MountPoint)>,
    mounted: Option<BorrowedMount>,
    outcome: PendingOutcome,
    has_ended: bool,
}

#[derive(Debug)]
struct BorrowedMount {
    mounted: MountHandle,
    _forward: Option<PortForward>,
    _permit: SchedulerPermit,
}

/// The result that the host receives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkDone {
    pub final_summary: String,
    /// Files worth looking at.
    pub highlights: Vec<String>,
    pub notes: Option<String>,
    /// The location of the complete output, if the summary doesn't contain all of it.
    pub full_output: Option<OutputLocation>,
}

/// Why work must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The host ended it with this message.
    Host(Box<AwcpMessage>),
    /// The lease expired.
    Expired,
    /// The mount is gone.
    Gone(UnmountReason),
}

/// The mount option that every transport follows.
const READ_ONLY: &str = "ro";
/// How long the final check that the host still serves the folder can take.
const FINAL_REFRESH_TIMEOUT: Duration = Duration::from_secs(30);
/// The same whatever is there: a host must not learn which addresses of this network answer, and how.
const NOT_CONNECTED: &str = "the remote can't connect to the address in START, or what is there doesn't have the key in START; \
                             its owner finds the reason in the runtime's log, and can allow addresses with `dial_hosts`";
/// The guard unmounts a moment after the runtime would have.
const GUARD_UNMOUNT_DELAY: Duration = Duration::from_secs(2);

// === impl BorrowedFolder ===

impl BorrowedFolder {
    pub(super) fn new(
        role: Collaborator,
        key: AssignmentKey,
        invite: AwcpInvite,
        started: (AwcpStart, Secret<String>, MountPoint),
        (terms, deadline, sandbox): (LeaseTerms, Timestamp, SandboxProfile),
        outcome: PendingOutcome,
    ) -> Self {
        let mount_point = started.2.mount_point();
        let started = Some(started);
        let ends = Instant::now() + terms.ttl;
        let (mounted, notes, has_ended) = (None, None, false);
        Self {
            role,
            key,
            invite,
            terms,
            sandbox,
            deadline,
            ends,
            notes,
            mount_point,
            started,
            mounted,
            outcome,
            has_ended,
        }
    }

    pub const fn invite(&self) -> &AwcpInvite {
        &self.invite
    }

    pub const fn access_mode(&self) -> AccessMode {
        self.terms.access_mode
    }

    /// The limits that the work was accepted with.
    pub const fn sandbox(&self) -> SandboxProfile {
        self.sandbox
    }

    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The mount point, valid once the folder is mounted.
    pub fn mount_point(&self) -> &std::path::Path {
        &self.mount_point
    }

    /// Waits for a slot and mounts the folder. Pass an error to [`fail`](Self::fail).
    pub async fn mount(&mut self) -> Result<(), AwcpError> {
        let Some((start, private_key, place)) = self.started.take() else { return Ok(()) };
        let options = self.role.options();
        let permit = options.scheduler.acquire(&self.key.caller, &self.key.delegation).await;
        let failed = |code, message: String| AwcpError::new(&self.key.delegation, code, message);
        let endpoint = start.mount.endpoint;
        let forward = match &endpoint.tunnel {
            Some(tunnel) => Some(PortForward::open(options.tunnels.dial(tunnel)).await.map_err(|error| {
                failed(AwcpErrorCode::MountFailed, format!("can't open a local port for the tunnel: {error}"))
            })?),
            None => None,
        };
        let (host, port) = match &forward {
            Some(forward) => (forward.address().ip().to_string(), forward.address().port()),
            None => match options.direct.resolve(&endpoint.host).await {
                // Resolved once: the name could lead elsewhere a moment later.
                Some(address) => (address.to_string(), endpoint.port),
                None => {
                    tracing::warn!(host = %endpoint.host, "START names a host that this machine doesn't connect to");
                    return Err(failed(AwcpErrorCode::MountFailed, NOT_CONNECTED.to_owned()));
                }
            },
        };
        let requested =
            start.mount.mount_options.and_then(|options| options.parse::<Vec<String>>().ok()).unwrap_or_default();
        let transport = MountTransport::named(&start.mount.transport).unwrap_or_default();
        let (requested, ignored) = match transport {
            MountTransport::Sshfs => mount::safe_mount_options(requested),
            // The others are options of sshfs.
            MountTransport::AttacheFs | MountTransport::Sync => {
                requested.into_iter().partition(|option| option == READ_ONLY || option == mount::SYNC_OPTION)
            }
        };
        let is_read_only = requested.iter().any(|option| option == READ_ONLY);
        if !ignored.is_empty() {
            self.notes = Some(format!("These mount options were ignored: {}.", ignored.join(", ")));
        }
        let request = MountRequest {
            host,
            port,
            user: endpoint.user,
            locator: start.mount.export_locator,
            host_key: start.mount.host_key.unwrap_or_default(),
            private_key,
            access_mode: if is_read_only { AccessMode::Ro } else { self.terms.access_mode },
            lasts: self.ends.duration_since(Instant::now()) + GUARD_UNMOUNT_DELAY,
            options: requested,
            transport,
        };
        let mounted = mount::mount(&options.guard, place, request).await.map_err(|error| {
            // Too late: report the expired lease, whatever the error was.
            let is_over = Instant::now() >= self.ends;
            if is_over {
                tracing::info!(%error, "the lease expired before the folder was mounted");
                return failed(AwcpErrorCode::Expired, "the lease expired before the folder was mounted".to_owned());
            }
            let text = match &error {
                MountError::Unreachable(_) | MountError::OtherHost(_) if forward.is_none() => {
                    tracing::warn!(%error, "the host of a delegated folder can't be reached");
                    NOT_CONNECTED.to_owned()
                }
                error => error.to_string(),
            };
            AwcpError { hint: error.hint(), ..failed(error.code(), text) }
        })?;
        self.role.record(&self.key, |entry| entry, "mount");
        self.mounted = Some(BorrowedMount { mounted, _forward: forward, _permit: permit });
        Ok(())
    }

    /// Waits until work must stop.
    pub async fn ended(&mut self) -> LeaseEnd {
        let ends = self.ends;
        let mounted = self.mounted.as_ref();
        let gone = async {
            match mounted {
                Some(mount) => mount.mounted.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            last = self.outcome.final_message() => LeaseEnd::Host(Box::new(last)),
            () = tokio::time::sleep_until(ends) => LeaseEnd::Expired,
            ended = gone => LeaseEnd::Gone(ended),
        }
    }

    /// Reports the work as done. When this returns, all writes have reached the host; otherwise it returns an error
    /// message.
    pub async fn done(mut self, work: WorkDone) -> AwcpMessage {
        let WorkDone { final_summary, highlights, notes, full_output } = work;
        let is_alive = match &self.mounted {
            Some(mount) => mount.mounted.is_alive(FINAL_REFRESH_TIMEOUT).await,
            None => false,
        };
        let ended = self.unmount().await;
        let (why, outages, lost) =
            ended.map_or((None, 0, Vec::new()), |ended| (Some(ended.why), ended.outages, ended.lost));
        let delegation_id = self.key.delegation.clone();
        let error = |code, text: &str| {
            let text = match losses_note(&lost) {
                Some(note) => format!("{text}. {note}"),
                None => text.to_owned(),
            };
            AwcpMessage::Error(AwcpError::new(&self.key.delegation, code, text))
        };
        let last = if Instant::now() >= self.ends || why == Some(UnmountReason::Expired) {
            error(AwcpErrorCode::Expired, "the lease expired before the work was done")
        } else if !is_alive || why != Some(UnmountReason::Asked) {
            error(AwcpErrorCode::TaskFailed, "access to the folder was lost while the agent worked in it")
        } else {
            // What was lost is known, so nothing else is incomplete.
            let mount_note = losses_note(&lost).or_else(|| outages_note(outages));
            let all_notes = [notes, self.notes.take(), mount_note].into_iter().flatten().collect::<Vec<_>>();
            let notes = Some(all_notes.join("\n")).filter(|notes| !notes.is_empty());
            AwcpMessage::Done(AwcpDone { delegation_id, final_summary, highlights, notes, full_output })
        };
        self.end(last)
    }

    /// Reports a failure. When this returns, the folder is unmounted.
    pub async fn fail(mut self, mut error: AwcpError) -> AwcpMessage {
        let lost = self.unmount().await.map(|ended| ended.lost).unwrap_or_default();
        if let Some(note) = losses_note(&lost) {
            error.message = format!("{}. {note}", error.message.trim_end_matches('.'));
        }
        self.end(AwcpMessage::Error(error))
    }

    /// Creates an error for this delegation.
    pub fn error(&self, code: AwcpErrorCode, message: impl Into<String>) -> AwcpError {
        AwcpError::new(&self.key.delegation, code, message)
    }

    /// The error to report after work had to stop.
    pub fn error_of(&self, end: &LeaseEnd) -> AwcpError {
        match end {
            LeaseEnd::Host(last) => match &**last {
                AwcpMessage::Error(error) => error.clone(),
                _ => self.error(AwcpErrorCode::Cancelled, "the delegation has ended"),
            },
            LeaseEnd::Expired | LeaseEnd::Gone(UnmountReason::Expired) => {
                self.error(AwcpErrorCode::Expired, "the lease expired before the work was done")
            }
            LeaseEnd::Gone(UnmountReason::Asked | UnmountReason::Died | UnmountReason::Unguarded) => {
                self.error(AwcpErrorCode::TaskFailed, "the mount of the folder was lost while the agent worked in it")
            }
        }
    }

    async fn unmount(&mut self) -> Option<MountSummary> {
        drop(self.started.take());
        match self.mounted.take() {
            Some(BorrowedMount { mounted, .. }) => Some(mounted.unmount().await),
            None => None,
        }
    }

    fn end(&mut self, last: AwcpMessage) -> AwcpMessage {
        self.has_ended = true;
        self.role.end(&self.key, last)
    }
}

/// For the host: the agent's changes that never arrived there.
fn losses_note(lost: &[LostChange]) -> Option<String> {
    if lost.is_empty() {
        return None;
    }
    let named = lost.iter().map(|LostChange { path, reason }| format!("{path} ({reason})")).collect::<Vec<_>>();
    Some(format!("These changes did not reach the folder: {}. Check the diff.", named.join(", ")))
}

/// For the host: writes in flight when the connection broke were lost.
fn outages_note(outages: u32) -> Option<String> {
    let times = match outages {
        0 => return None,
        1 => "once".to_owned(),
        more => format!("{more} times"),
    };
    Some(format!(
        "The connection to the folder broke {times} and was restored. Files that were being written may be incomplete: \
         check the diff."
    ))
}

impl Drop for BorrowedFolder {
    fn drop(&mut self) {
        if !self.has_ended {
            let error = self.error(AwcpErrorCode::TaskFailed, "the collaborator stopped working on it");
            self.role.end(&self.key, AwcpMessage::Error(error));
        }
    }
}
