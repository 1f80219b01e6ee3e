//! The collaborator's side of a delegation: `INVITE → accepted → START → active → ended`. A repeated message gets the
//! same answer. Nothing starts twice, and nothing starts late.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    time::Duration,
};

use crate::{
    rules::delegation::LeaseTerms,
    time::Timestamp,
    wire::awcp::{
        AccessMode, AwcpAccept, AwcpError, AwcpErrorCode, AwcpInvite, AwcpMessage, AwcpStart, SSHFS, SandboxProfile,
    },
};

/// What this machine's owner allows, and what it can enforce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollaboratorLimits {
    pub access_modes: Vec<AccessMode>,
    pub max_ttl: Duration,
    /// The sandbox the owner requires, which the work gets.
    pub wanted: SandboxProfile,
    /// What this machine can enforce.
    pub available: SandboxProfile,
}

/// All delegations this side knows, by caller and delegation id. Callers can't start, end or learn about each other's
/// delegations.
#[derive(Debug, Clone, Default)]
pub struct AssignmentBook {
    assignments: BTreeMap<AssignmentKey, Assignment>,
    /// In the order they ended. The oldest are dropped.
    ended: VecDeque<AssignmentKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentKey {
    pub caller: String,
    pub delegation: String,
}

#[derive(Debug, Clone)]
struct Assignment {
    /// `None` if the end arrived first.
    invite: Option<AwcpInvite>,
    phase: AssignmentPhase,
}

#[derive(Debug, Clone)]
enum AssignmentPhase {
    Accepted(OpenAssignment),
    Active(OpenAssignment),
    /// With the final message.
    Ended(AwcpMessage),
}

#[derive(Debug, Clone)]
struct OpenAssignment {
    accept: AwcpAccept,
    terms: LeaseTerms,
    deadline: Timestamp,
}

/// The effect of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentEffect {
    /// A new invitation, to be answered with [`AssignmentBook::accept`] or [`AssignmentBook::end`].
    Invited,
    /// Mount and work, on these terms until the deadline. Happens once per delegation.
    Begin { terms: LeaseTerms, deadline: Timestamp },
    /// It is in progress. The answer follows when it ends.
    Underway,
    /// Reply with this message.
    Reply(AwcpMessage),
    /// The host ended it. Stop working.
    Ended(AwcpMessage),
}

/// How many ended delegations are remembered, and how many may be open at a time.
const MAX_REMEMBERED: usize = 1024;
const MAX_OPEN: usize = 256;

// === impl CollaboratorLimits ===

impl CollaboratorLimits {
    /// The acceptable terms of an offer: never more than offered, never more than allowed here.
    pub fn agree(&self, invite: &AwcpInvite) -> Result<LeaseTerms, AwcpError> {
        let decline = |message: String| Err(AwcpError::new(&invite.delegation_id, AwcpErrorCode::Declined, message));
        let transport = &invite.requirements.mount_transport;
        if transport != SSHFS {
            return decline(format!("this machine supports only `{SSHFS}` mounts, not `{transport}`"));
        }
        if let Some(wishes) = self.unenforced() {
            return decline(format!(
                "its owner requires a sandbox that this machine can't enforce: {wishes}. Nothing was started."
            ));
        }
        let allows = |mode| self.access_modes.contains(&mode);
        let access_mode = match invite.lease.access_mode {
            AccessMode::Rw if allows(AccessMode::Rw) => AccessMode::Rw,
            _ if allows(AccessMode::Ro) => AccessMode::Ro,
            offered => return decline(format!("its owner doesn't allow `{offered}`")),
        };
        let ttl = Duration::from_secs(invite.lease.ttl_seconds).min(self.max_ttl);
        if ttl.is_zero() {
            return decline("the lease has no duration".to_owned());
        }
        Ok(LeaseTerms { access_mode, ttl })
    }

    /// The requirements that are not enforced, as text.
    fn unenforced(&self) -> Option<String> {
        let Self { wanted, available, .. } = self;
        let mut wishes = String::new();
        let unfulfilled = [
            (wanted.cwd_only && !available.cwd_only, "cwd_only = true"),
            (!wanted.allow_network && available.allow_network, "allow_network = false"),
            (!wanted.allow_exec && available.allow_exec, "allow_exec = false"),
        ];
        for (_, wish) in unfulfilled.into_iter().filter(|(is_unfulfilled, _)| *is_unfulfilled) {
            let comma = if wishes.is_empty() { "" } else { ", " };
            let _ = write!(wishes, "{comma}{wish}");
        }
        Some(wishes).filter(|wishes| !wishes.is_empty())
    }
}

// === impl AssignmentBook ===

impl AssignmentBook {
    /// Handles a message from the host. The answer is remembered.
    pub fn receive(&mut self, key: &AssignmentKey, message: &AwcpMessage, now: Timestamp) -> AssignmentEffect {
        let refuse =
            |code, text: &str| AssignmentEffect::Reply(AwcpMessage::Error(AwcpError::new(&key.delegation, code, text)));
        self.expire(key, now);
        match message {
            AwcpMessage::Invite(invite) => self.invited(key, invite),
            AwcpMessage::Start(start) => self.started(key, start, now),
            AwcpMessage::Error(error) => {
                let ended = AwcpMessage::Error(AwcpError { delegation_id: key.delegation.clone(), ..error.clone() });
                match self.assignments.get(key).map(|assignment| &assignment.phase) {
                    Some(AssignmentPhase::Ended(last)) => AssignmentEffect::Reply(last.clone()),
                    _ => AssignmentEffect::Ended(self.end(key, ended)),
                }
            }
            AwcpMessage::Accept(_) | AwcpMessage::Done(_) => {
                refuse(AwcpErrorCode::Declined, "a host sends INVITE, START or ERROR; this message is not expected")
            }
        }
    }

    fn invited(&self, key: &AssignmentKey, invite: &AwcpInvite) -> AssignmentEffect {
        let Some(assignment) = self.assignments.get(key) else {
            let open = self.assignments.len() - self.ended.len();
            if open < MAX_OPEN {
                return AssignmentEffect::Invited;
            }
            let text = format!("{open} delegations are already open here, which is the limit");
            return AssignmentEffect::Reply(AwcpMessage::Error(AwcpError::new(
                &key.delegation,
                AwcpErrorCode::Declined,
                text,
            )));
        };
        if assignment.invite.as_ref().is_some_and(|known| known != invite) {
            let text = "another invitation already has this delegation_id; use a new one";
            return AssignmentEffect::Reply(AwcpMessage::Error(AwcpError::new(
                &key.delegation,
                AwcpErrorCode::Declined,
                text,
            )));
        }
        match &assignment.phase {
            AssignmentPhase::Accepted(open) => AssignmentEffect::Reply(AwcpMessage::Accept(open.accept.clone())),
            AssignmentPhase::Active(_) => AssignmentEffect::Underway,
            AssignmentPhase::Ended(last) => AssignmentEffect::Reply(last.clone()),
        }
    }

    fn started(&mut self, key: &AssignmentKey, start: &AwcpStart, now: Timestamp) -> AssignmentEffect {
        let late = |text: &str| AwcpMessage::Error(AwcpError::new(&key.delegation, AwcpErrorCode::StartExpired, text));
        let Some(assignment) = self.assignments.get_mut(key) else {
            return AssignmentEffect::Reply(late("no invitation with this delegation_id is open here"));
        };
        match &assignment.phase {
            // A duration works with any clock. A point in time works only if the two clocks agree.
            AssignmentPhase::Accepted(_) if start.lease.ends_at(now) <= now => {
                AssignmentEffect::Reply(self.end(key, late("the lease expired before START arrived")))
            }
            AssignmentPhase::Accepted(open) => {
                // The agreed terms apply, whatever START says.
                let access_mode = match start.lease.access_mode {
                    AccessMode::Ro => AccessMode::Ro,
                    AccessMode::Rw => open.terms.access_mode,
                };
                let deadline = start.lease.ends_at(now).min(now.plus(open.terms.ttl));
                let terms = LeaseTerms { access_mode, ttl: deadline.since(now) };
                assignment.phase =
                    AssignmentPhase::Active(OpenAssignment { accept: open.accept.clone(), terms, deadline });
                AssignmentEffect::Begin { terms, deadline }
            }
            AssignmentPhase::Active(_) => AssignmentEffect::Underway,
            // A repeated START.
            AssignmentPhase::Ended(last @ AwcpMessage::Error(AwcpError { code: AwcpErrorCode::StartExpired, .. })) => {
                AssignmentEffect::Reply(last.clone())
            }
            AssignmentPhase::Ended(_) => AssignmentEffect::Reply(late("the delegation is over")),
        }
    }

    /// Accepts an invitation for as long as the lease would last. Returns the message to send, which is the earlier
    /// answer if there was one.
    pub fn accept(
        &mut self,
        key: &AssignmentKey,
        invite: &AwcpInvite,
        accept: AwcpAccept,
        terms: LeaseTerms,
        now: Timestamp,
    ) -> AwcpMessage {
        if let AssignmentEffect::Reply(reply) = self.invited(key, invite) {
            return reply;
        }
        let open = OpenAssignment { accept: accept.clone(), terms, deadline: now.plus(terms.ttl) };
        let assignment = Assignment { invite: Some(invite.clone()), phase: AssignmentPhase::Accepted(open) };
        self.assignments.entry(key.clone()).or_insert(assignment);
        AwcpMessage::Accept(accept)
    }

    /// Ends a delegation with DONE or ERROR. Only the first end counts. Returns the final message.
    pub fn end(&mut self, key: &AssignmentKey, last: AwcpMessage) -> AwcpMessage {
        let assignment = self.assignments.entry(key.clone());
        let assignment = assignment.or_insert(Assignment { invite: None, phase: AssignmentPhase::Ended(last.clone()) });
        if let AssignmentPhase::Ended(ended) = &assignment.phase {
            let ended = ended.clone();
            if !self.ended.contains(key) {
                self.remember(key);
            }
            return ended;
        }
        assignment.phase = AssignmentPhase::Ended(last.clone());
        self.remember(key);
        last
    }

    /// The invitation of an open delegation.
    pub fn invite(&self, key: &AssignmentKey) -> Option<&AwcpInvite> {
        self.assignments.get(key)?.invite.as_ref()
    }

    pub fn has_ended(&self, key: &AssignmentKey) -> bool {
        self.assignments.get(key).is_some_and(|assignment| matches!(assignment.phase, AssignmentPhase::Ended(_)))
    }

    /// When an open delegation ends. `None` if it has ended.
    pub fn deadline(&self, key: &AssignmentKey) -> Option<Timestamp> {
        match &self.assignments.get(key)?.phase {
            AssignmentPhase::Accepted(open) | AssignmentPhase::Active(open) => Some(open.deadline),
            AssignmentPhase::Ended(_) => None,
        }
    }

    /// An invitation without START expires. Work that takes too long is ended by its worker.
    fn expire(&mut self, key: &AssignmentKey, now: Timestamp) {
        if let Some(Assignment { phase: AssignmentPhase::Accepted(open), .. }) = self.assignments.get(key)
            && now >= open.deadline
        {
            let text = "the invitation expired before START arrived";
            self.end(key, AwcpMessage::Error(AwcpError::new(&key.delegation, AwcpErrorCode::Expired, text)));
        }
    }

    fn remember(&mut self, key: &AssignmentKey) {
        self.ended.push_back(key.clone());
        if self.ended.len() > MAX_REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.assignments.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
