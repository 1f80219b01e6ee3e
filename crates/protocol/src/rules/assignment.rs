//! The life of a delegation at the side that borrows: `INVITE → accepted → START → active → ended`. Whatever comes twice gets
//! the answer that it got before, nothing begins twice, and nothing begins late.

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

/// What the owner of this machine allows, and what is enforced on it today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollaboratorLimits {
    pub access_modes: Vec<AccessMode>,
    pub max_ttl: Duration,
    /// What the owner wants of the sandbox.
    pub wanted: SandboxProfile,
    /// What there is.
    pub enforced: SandboxProfile,
}

/// Every delegation that this side has heard of, by who asked and what they call it. What one caller lends, no other caller
/// can start, end or learn of.
#[derive(Debug, Clone, Default)]
pub struct AssignmentBook {
    assignments: BTreeMap<AssignmentKey, Assignment>,
    /// In the order in which they ended; the oldest are forgotten.
    ended: VecDeque<AssignmentKey>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentKey {
    pub caller: String,
    pub delegation: String,
}

#[derive(Debug, Clone)]
struct Assignment {
    /// None where the end came first.
    invite: Option<AwcpInvite>,
    phase: AssignmentPhase,
}

#[derive(Debug, Clone)]
enum AssignmentPhase {
    Accepted(OpenAssignment),
    Active(OpenAssignment),
    /// With the last word.
    Ended(AwcpMessage),
}

#[derive(Debug, Clone)]
struct OpenAssignment {
    accept: AwcpAccept,
    terms: LeaseTerms,
    deadline: Timestamp,
}

/// What a message means here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignmentEffect {
    /// An invitation that nobody has answered: [`AssignmentBook::accept`] or [`AssignmentBook::end`] does.
    Invited,
    /// Mount and work, on these terms until then. Said once per delegation.
    Begin { terms: LeaseTerms, deadline: Timestamp },
    /// It is being worked on; its end is the answer.
    Underway,
    /// This is the answer.
    Reply(AwcpMessage),
    /// The host ended it. Whoever works on it stops.
    Ended(AwcpMessage),
}

/// How many that ended are remembered, and how many may be open at a time.
const MAX_REMEMBERED: usize = 1024;
const MAX_OPEN: usize = 256;

// === impl CollaboratorLimits ===

impl CollaboratorLimits {
    /// What of an offer can be taken: never more than was offered, never more than is allowed here.
    pub fn agree(&self, invite: &AwcpInvite) -> Result<LeaseTerms, AwcpError> {
        let decline = |message: String| Err(AwcpError::new(&invite.delegation_id, AwcpErrorCode::Declined, message));
        let transport = &invite.requirements.mount_transport;
        if transport != SSHFS {
            return decline(format!("this machine mounts by `{SSHFS}` only, not by `{transport}`"));
        }
        if let Some(wishes) = self.unenforced() {
            return decline(format!(
                "its owner wants a sandbox that nothing on this machine enforces today: {wishes}. Nothing was started."
            ));
        }
        let allows = |mode| self.access_modes.contains(&mode);
        let access_mode = match invite.lease.access_mode {
            AccessMode::Rw if allows(AccessMode::Rw) => AccessMode::Rw,
            _ if allows(AccessMode::Ro) => AccessMode::Ro,
            offered => return decline(format!("its owner does not allow `{offered}`")),
        };
        let ttl = Duration::from_secs(invite.lease.ttl_seconds).min(self.max_ttl);
        if ttl.is_zero() {
            return decline("a lease of no time at all is of no use".to_owned());
        }
        Ok(LeaseTerms { access_mode, ttl })
    }

    /// The wishes that nobody fulfils, in words.
    fn unenforced(&self) -> Option<String> {
        let Self { wanted, enforced, .. } = self;
        let mut wishes = String::new();
        let unfulfilled = [
            (wanted.cwd_only && !enforced.cwd_only, "cwd_only = true"),
            (!wanted.allow_network && enforced.allow_network, "allow_network = false"),
            (!wanted.allow_exec && enforced.allow_exec, "allow_exec = false"),
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
    /// Takes a message of the host. Whatever is answered is remembered.
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
                refuse(AwcpErrorCode::Declined, "a host sends INVITE, START or ERROR; this message is out of turn")
            }
        }
    }

    fn invited(&self, key: &AssignmentKey, invite: &AwcpInvite) -> AssignmentEffect {
        let Some(assignment) = self.assignments.get(key) else {
            let open = self.assignments.len() - self.ended.len();
            if open < MAX_OPEN {
                return AssignmentEffect::Invited;
            }
            let text = format!("{open} delegations are open here, and there may be no more");
            return AssignmentEffect::Reply(AwcpMessage::Error(AwcpError::new(
                &key.delegation,
                AwcpErrorCode::Declined,
                text,
            )));
        };
        if assignment.invite.as_ref().is_some_and(|known| known != invite) {
            let text = "another invitation has this delegation_id; use a new one";
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
            // A length of time holds by any clock; a point in time only where the two clocks agree.
            AssignmentPhase::Accepted(_) if start.lease.ends_at(now) <= now => {
                AssignmentEffect::Reply(self.end(key, late("the lease was over before START arrived")))
            }
            AssignmentPhase::Accepted(open) => {
                // What was agreed holds, whatever START says.
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
            // The same START once more.
            AssignmentPhase::Ended(last @ AwcpMessage::Error(AwcpError { code: AwcpErrorCode::StartExpired, .. })) => {
                AssignmentEffect::Reply(last.clone())
            }
            AssignmentPhase::Ended(_) => AssignmentEffect::Reply(late("the delegation is over")),
        }
    }

    /// Answers an invitation with ACCEPT; it holds for as long as the lease would. Answers what is to be sent, which is an
    /// earlier answer if there was one.
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

    /// Ends a delegation with DONE or ERROR; the first end is the one. Answers the last word.
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

    /// The invitation that an open delegation began with.
    pub fn invite(&self, key: &AssignmentKey) -> Option<&AwcpInvite> {
        self.assignments.get(key)?.invite.as_ref()
    }

    pub fn has_ended(&self, key: &AssignmentKey) -> bool {
        self.assignments.get(key).is_some_and(|assignment| matches!(assignment.phase, AssignmentPhase::Ended(_)))
    }

    /// When an open delegation is over; none when it is.
    pub fn deadline(&self, key: &AssignmentKey) -> Option<Timestamp> {
        match &self.assignments.get(key)?.phase {
            AssignmentPhase::Accepted(open) | AssignmentPhase::Active(open) => Some(open.deadline),
            AssignmentPhase::Ended(_) => None,
        }
    }

    /// An invitation that nobody followed is void. Work that takes too long is ended by whoever works.
    fn expire(&mut self, key: &AssignmentKey, now: Timestamp) {
        if let Some(Assignment { phase: AssignmentPhase::Accepted(open), .. }) = self.assignments.get(key)
            && now >= open.deadline
        {
            let text = "nobody sent START while the invitation was open";
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
