//! The life of a delegation at the side that lends: `created → invited → accepted → started → running`, then one of four
//! ends. Whatever ends a lease that was given out, the folder is taken back before anybody is told.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    time::Timestamp,
    wire::awcp::{AccessMode, ErrorCode, RemoteConstraints},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DelegationStatus)]
pub enum Status {
    /// It waits for its turn; nobody knows of it.
    Created,
    /// INVITE is out.
    Invited,
    /// ACCEPT is in, and the terms are agreed.
    Accepted,
    /// START is out: from here on there is something to take back.
    Started,
    /// The remote has the folder and works in it.
    Running,
    Completed,
    Error,
    Cancelled,
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub status: Status,
    pub terms: Terms,
    /// When it expires: the invitation at first, the lease once there is one.
    pub deadline: Timestamp,
}

/// What is lent, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub access_mode: AccessMode,
    pub ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// INVITE was sent.
    Invite,
    /// ACCEPT came.
    Accept(RemoteConstraints),
    /// The export exists, and START goes out.
    Start,
    /// The remote shows that it works.
    Work,
    /// DONE came.
    Complete,
    /// ERROR came, or the way to the remote is lost for good.
    Fail(ErrorCode),
    /// A person or the delegating agent ends it.
    Cancel,
    /// The deadline may have passed.
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    pub state: State,
    /// In this order.
    pub effects: Vec<Effect>,
}

/// What has to be done because of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Close the export: its key is gone and its connections are cut.
    Revoke,
    /// Send the remote this ERROR and cancel its task.
    Tell(ErrorCode),
    /// Write down what changed and how it ended, and wake whoever waits.
    Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is over already.
    Ended(Status),
    /// It is not the time for this.
    OutOfTurn { status: Status, wanted: &'static str },
    /// The remote accepted more than was offered, or nothing that could be used.
    BadTerms(BadTerms),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadTerms {
    MoreAccess,
    NoTime,
}

// === impl State ===

impl State {
    pub fn new(terms: Terms, now: Timestamp) -> Self {
        Self { status: Status::Created, terms, deadline: now.plus(terms.ttl) }
    }

    /// Its turn has come: the time to take it up begins now, however long it was queued.
    #[must_use]
    pub fn released(self, now: Timestamp) -> Self {
        Self { deadline: now.plus(self.terms.ttl), ..self }
    }

    /// What a command does at a point in time.
    pub fn step(self, command: &Command, now: Timestamp) -> Result<Transition, Refusal> {
        if self.status.has_ended() {
            return Err(Refusal::Ended(self.status));
        }
        match command {
            // An end that comes late is still an end; but nothing begins or goes on after the deadline.
            Command::Complete if self.is_lent() => Ok(self.end(Status::Completed, None)),
            Command::Fail(code) => Ok(self.end(ended_by(*code), None)),
            Command::Cancel => Ok(self.end(Status::Cancelled, Some(ErrorCode::Cancelled))),
            _ if now >= self.deadline => Ok(self.end(Status::Expired, Some(ErrorCode::Expired))),
            Command::Tick => Ok(self.to(self.status)),
            Command::Invite if self.status == Status::Created => Ok(self.to(Status::Invited)),
            Command::Accept(constraints) if self.status == Status::Invited => {
                let terms = self.terms.agree(constraints).map_err(Refusal::BadTerms)?;
                Ok(Self { terms, ..self }.to(Status::Accepted))
            }
            Command::Start if self.status == Status::Accepted => {
                Ok(Self { deadline: now.plus(self.terms.ttl), ..self }.to(Status::Started))
            }
            Command::Work if self.is_lent() => Ok(self.to(Status::Running)),
            Command::Invite => Err(self.out_of_turn("INVITE")),
            Command::Accept(_) => Err(self.out_of_turn("ACCEPT")),
            Command::Start => Err(self.out_of_turn("START")),
            Command::Work => Err(self.out_of_turn("work")),
            Command::Complete => Err(self.out_of_turn("DONE")),
        }
    }

    /// Whether the remote holds something that can be taken back.
    pub const fn is_lent(&self) -> bool {
        matches!(self.status, Status::Started | Status::Running)
    }

    const fn out_of_turn(&self, wanted: &'static str) -> Refusal {
        Refusal::OutOfTurn { status: self.status, wanted }
    }

    fn to(self, status: Status) -> Transition {
        Transition { state: Self { status, ..self }, effects: Vec::new() }
    }

    fn end(self, status: Status, tell: Option<ErrorCode>) -> Transition {
        let mut effects = Vec::new();
        if self.is_lent() {
            effects.push(Effect::Revoke);
        }
        // A remote that was never invited need not hear that it is over.
        effects.extend(tell.filter(|_| self.status != Status::Created).map(Effect::Tell));
        effects.push(Effect::Report);
        Transition { state: Self { status, ..self }, effects }
    }
}

/// What the remote says of the end decides how it is shown.
const fn ended_by(code: ErrorCode) -> Status {
    match code {
        ErrorCode::Cancelled => Status::Cancelled,
        ErrorCode::Expired | ErrorCode::StartExpired => Status::Expired,
        _ => Status::Error,
    }
}

// === impl Terms ===

impl Terms {
    /// The remote may take less than was offered, never more.
    pub fn agree(self, constraints: &RemoteConstraints) -> Result<Self, BadTerms> {
        let access_mode = match (self.access_mode, constraints.accepted_access_mode) {
            (offered, None) => offered,
            (AccessMode::Ro, Some(AccessMode::Rw)) => return Err(BadTerms::MoreAccess),
            (_, Some(accepted)) => accepted,
        };
        let ttl = constraints.max_ttl_seconds.map_or(self.ttl, |most| self.ttl.min(Duration::from_secs(most)));
        if ttl.is_zero() { Err(BadTerms::NoTime) } else { Ok(Self { access_mode, ttl }) }
    }
}

// === impl Status ===

impl Status {
    pub const ALL: [Self; 9] = [
        Self::Created,
        Self::Invited,
        Self::Accepted,
        Self::Started,
        Self::Running,
        Self::Completed,
        Self::Error,
        Self::Cancelled,
        Self::Expired,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Invited => "invited",
            Self::Accepted => "accepted",
            Self::Started => "started",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }

    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Error | Self::Cancelled | Self::Expired)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Refusal ===

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(status) => write!(f, "the delegation is over ({status})"),
            Self::OutOfTurn { status, wanted } => write!(f, "{wanted} is out of turn: the delegation is {status}"),
            Self::BadTerms(BadTerms::MoreAccess) => {
                f.write_str("the remote accepted `rw` for a folder that is offered `ro`")
            }
            Self::BadTerms(BadTerms::NoTime) => f.write_str("the remote accepted a lease of no time at all"),
        }
    }
}

#[cfg(test)]
mod tests;
