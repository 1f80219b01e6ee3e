//! The life of a delegation at the side that borrows: `INVITE → accepted → START → active → ended`. Whatever comes twice gets
//! the answer that it got before, nothing begins twice, and nothing begins late.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    time::Duration,
};

use crate::{
    rules::delegation::Terms,
    time::Timestamp,
    wire::awcp::{Accept, AccessMode, Error, ErrorCode, Invite, Message, SSHFS, SandboxProfile, Start},
};

/// What the owner of this machine allows, and what is enforced on it today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
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
pub struct Book {
    assignments: BTreeMap<Key, Assignment>,
    /// In the order in which they ended; the oldest are forgotten.
    ended: VecDeque<Key>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub caller: String,
    pub delegation: String,
}

#[derive(Debug, Clone)]
struct Assignment {
    /// None where the end came first.
    invite: Option<Invite>,
    phase: Phase,
}

#[derive(Debug, Clone)]
enum Phase {
    Accepted(Open),
    Active(Open),
    /// With the last word.
    Ended(Message),
}

#[derive(Debug, Clone)]
struct Open {
    accept: Accept,
    terms: Terms,
    deadline: Timestamp,
}

/// What a message means here and now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// An invitation that nobody has answered: [`Book::accept`] or [`Book::end`] does.
    Invited,
    /// Mount and work, on these terms until then. Said once per delegation.
    Begin { terms: Terms, deadline: Timestamp },
    /// It is being worked on; its end is the answer.
    Underway,
    /// This is the answer.
    Reply(Message),
    /// The host ended it. Whoever works on it stops.
    Ended(Message),
}

/// How many that ended are remembered, and how many may be open at a time.
const REMEMBERED: usize = 1024;
const MOST_OPEN: usize = 256;

// === impl Limits ===

impl Limits {
    /// What of an offer can be taken: never more than was offered, never more than is allowed here.
    pub fn agree(&self, invite: &Invite) -> Result<Terms, Error> {
        let decline = |message: String| Err(Error::new(&invite.delegation_id, ErrorCode::Declined, message));
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
        Ok(Terms { access_mode, ttl })
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

// === impl Book ===

impl Book {
    /// Takes a message of the host. Whatever is answered is remembered.
    pub fn hear(&mut self, key: &Key, message: &Message, now: Timestamp) -> Heard {
        let refuse = |code, text: &str| Heard::Reply(Message::Error(Error::new(&key.delegation, code, text)));
        self.expire(key, now);
        match message {
            Message::Invite(invite) => self.invited(key, invite),
            Message::Start(start) => self.started(key, start, now),
            Message::Error(error) => {
                let ended = Message::Error(Error { delegation_id: key.delegation.clone(), ..error.clone() });
                match self.assignments.get(key).map(|assignment| &assignment.phase) {
                    Some(Phase::Ended(last)) => Heard::Reply(last.clone()),
                    _ => Heard::Ended(self.end(key, ended)),
                }
            }
            Message::Accept(_) | Message::Done(_) => {
                refuse(ErrorCode::Declined, "a host sends INVITE, START or ERROR; this message is out of turn")
            }
        }
    }

    fn invited(&self, key: &Key, invite: &Invite) -> Heard {
        let Some(assignment) = self.assignments.get(key) else {
            let open = self.assignments.len() - self.ended.len();
            if open < MOST_OPEN {
                return Heard::Invited;
            }
            let text = format!("{open} delegations are open here, and there may be no more");
            return Heard::Reply(Message::Error(Error::new(&key.delegation, ErrorCode::Declined, text)));
        };
        if assignment.invite.as_ref().is_some_and(|known| known != invite) {
            let text = "another invitation has this delegation_id; use a new one";
            return Heard::Reply(Message::Error(Error::new(&key.delegation, ErrorCode::Declined, text)));
        }
        match &assignment.phase {
            Phase::Accepted(open) => Heard::Reply(Message::Accept(open.accept.clone())),
            Phase::Active(_) => Heard::Underway,
            Phase::Ended(last) => Heard::Reply(last.clone()),
        }
    }

    fn started(&mut self, key: &Key, start: &Start, now: Timestamp) -> Heard {
        let late = |text: &str| Message::Error(Error::new(&key.delegation, ErrorCode::StartExpired, text));
        let Some(assignment) = self.assignments.get_mut(key) else {
            return Heard::Reply(late("no invitation with this delegation_id is open here"));
        };
        match &assignment.phase {
            // A length of time holds by any clock; a point in time only where the two clocks agree.
            Phase::Accepted(_) if start.lease.ends_at(now) <= now => {
                Heard::Reply(self.end(key, late("the lease was over before START arrived")))
            }
            Phase::Accepted(open) => {
                // What was agreed holds, whatever START says.
                let access_mode = match start.lease.access_mode {
                    AccessMode::Ro => AccessMode::Ro,
                    AccessMode::Rw => open.terms.access_mode,
                };
                let deadline = start.lease.ends_at(now).min(now.plus(open.terms.ttl));
                let terms = Terms { access_mode, ttl: deadline.since(now) };
                assignment.phase = Phase::Active(Open { accept: open.accept.clone(), terms, deadline });
                Heard::Begin { terms, deadline }
            }
            Phase::Active(_) => Heard::Underway,
            // The same START once more.
            Phase::Ended(last @ Message::Error(Error { code: ErrorCode::StartExpired, .. })) => {
                Heard::Reply(last.clone())
            }
            Phase::Ended(_) => Heard::Reply(late("the delegation is over")),
        }
    }

    /// Answers an invitation with ACCEPT; it holds for as long as the lease would. Answers what is to be sent, which is an
    /// earlier answer if there was one.
    pub fn accept(&mut self, key: &Key, invite: &Invite, accept: Accept, terms: Terms, now: Timestamp) -> Message {
        if let Heard::Reply(reply) = self.invited(key, invite) {
            return reply;
        }
        let open = Open { accept: accept.clone(), terms, deadline: now.plus(terms.ttl) };
        let assignment = Assignment { invite: Some(invite.clone()), phase: Phase::Accepted(open) };
        self.assignments.entry(key.clone()).or_insert(assignment);
        Message::Accept(accept)
    }

    /// Ends a delegation with DONE or ERROR; the first end is the one. Answers the last word.
    pub fn end(&mut self, key: &Key, last: Message) -> Message {
        let assignment = self.assignments.entry(key.clone());
        let assignment = assignment.or_insert(Assignment { invite: None, phase: Phase::Ended(last.clone()) });
        if let Phase::Ended(ended) = &assignment.phase {
            let ended = ended.clone();
            if !self.ended.contains(key) {
                self.remember(key);
            }
            return ended;
        }
        assignment.phase = Phase::Ended(last.clone());
        self.remember(key);
        last
    }

    /// The invitation that an open delegation began with.
    pub fn invite(&self, key: &Key) -> Option<&Invite> {
        self.assignments.get(key)?.invite.as_ref()
    }

    pub fn has_ended(&self, key: &Key) -> bool {
        self.assignments.get(key).is_some_and(|assignment| matches!(assignment.phase, Phase::Ended(_)))
    }

    /// When an open delegation is over; none when it is.
    pub fn deadline(&self, key: &Key) -> Option<Timestamp> {
        match &self.assignments.get(key)?.phase {
            Phase::Accepted(open) | Phase::Active(open) => Some(open.deadline),
            Phase::Ended(_) => None,
        }
    }

    /// An invitation that nobody followed is void. Work that takes too long is ended by whoever works.
    fn expire(&mut self, key: &Key, now: Timestamp) {
        if let Some(Assignment { phase: Phase::Accepted(open), .. }) = self.assignments.get(key)
            && now >= open.deadline
        {
            let text = "nobody sent START while the invitation was open";
            self.end(key, Message::Error(Error::new(&key.delegation, ErrorCode::Expired, text)));
        }
    }

    fn remember(&mut self, key: &Key) {
        self.ended.push_back(key.clone());
        if self.ended.len() > REMEMBERED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.assignments.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests;
