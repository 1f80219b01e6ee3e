//! The life of a delegation at the side that lends: `created → invited → accepted → started → running`, then one of four
//! ends. Whatever ends a lease that was given out, the folder is taken back before anybody is told.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    time::Timestamp,
    wire::awcp::{AccessMode, AwcpErrorCode, RemoteConstraints},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DelegationStatus)]
pub enum DelegationStatus {
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
pub struct DelegationState {
    pub status: DelegationStatus,
    pub terms: LeaseTerms,
    /// When it expires: the invitation at first, the lease once there is one.
    pub deadline: Timestamp,
}

/// What is lent, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    pub access_mode: AccessMode,
    pub ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationCommand {
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
    Fail(AwcpErrorCode),
    /// A person or the delegating agent ends it.
    Cancel,
    /// The deadline may have passed.
    Tick,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationTransition {
    pub state: DelegationState,
    /// In this order.
    pub effects: Vec<DelegationEffect>,
}

/// What has to be done because of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationEffect {
    /// Close the export: its key is gone and its connections are cut.
    Revoke,
    /// Send the remote this ERROR and cancel its task.
    Tell(AwcpErrorCode),
    /// Write down what changed and how it ended, and wake whoever waits.
    Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationRefusal {
    /// It is over already.
    Ended(DelegationStatus),
    /// It is not the time for this.
    OutOfTurn { status: DelegationStatus, wanted: &'static str },
    /// The remote accepted more than was offered, or nothing that could be used.
    BadTerms(LeaseTermsError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseTermsError {
    MoreAccess,
    NoTime,
}

// === impl DelegationState ===

impl DelegationState {
    pub fn new(terms: LeaseTerms, now: Timestamp) -> Self {
        Self { status: DelegationStatus::Created, terms, deadline: now.plus(terms.ttl) }
    }

    /// Its turn has come: the time to take it up begins now, however long it was queued.
    #[must_use]
    pub fn released(self, now: Timestamp) -> Self {
        Self { deadline: now.plus(self.terms.ttl), ..self }
    }

    /// What a command does at a point in time.
    pub fn step(self, command: &DelegationCommand, now: Timestamp) -> Result<DelegationTransition, DelegationRefusal> {
        if self.status.has_ended() {
            return Err(DelegationRefusal::Ended(self.status));
        }
        match command {
            // An end that comes late is still an end; but nothing begins or goes on after the deadline.
            DelegationCommand::Complete if self.is_exported() => Ok(self.end(DelegationStatus::Completed, None)),
            DelegationCommand::Fail(code) => Ok(self.end(ended_by(*code), None)),
            DelegationCommand::Cancel => Ok(self.end(DelegationStatus::Cancelled, Some(AwcpErrorCode::Cancelled))),
            _ if now >= self.deadline => Ok(self.end(DelegationStatus::Expired, Some(AwcpErrorCode::Expired))),
            DelegationCommand::Tick => Ok(self.to(self.status)),
            DelegationCommand::Invite if self.status == DelegationStatus::Created => {
                Ok(self.to(DelegationStatus::Invited))
            }
            DelegationCommand::Accept(constraints) if self.status == DelegationStatus::Invited => {
                let terms = self.terms.agree(constraints).map_err(DelegationRefusal::BadTerms)?;
                Ok(Self { terms, ..self }.to(DelegationStatus::Accepted))
            }
            DelegationCommand::Start if self.status == DelegationStatus::Accepted => {
                Ok(Self { deadline: now.plus(self.terms.ttl), ..self }.to(DelegationStatus::Started))
            }
            DelegationCommand::Work if self.is_exported() => Ok(self.to(DelegationStatus::Running)),
            DelegationCommand::Invite => Err(self.out_of_turn("INVITE")),
            DelegationCommand::Accept(_) => Err(self.out_of_turn("ACCEPT")),
            DelegationCommand::Start => Err(self.out_of_turn("START")),
            DelegationCommand::Work => Err(self.out_of_turn("work")),
            DelegationCommand::Complete => Err(self.out_of_turn("DONE")),
        }
    }

    /// Whether the remote holds something that can be taken back.
    pub const fn is_exported(&self) -> bool {
        matches!(self.status, DelegationStatus::Started | DelegationStatus::Running)
    }

    const fn out_of_turn(&self, wanted: &'static str) -> DelegationRefusal {
        DelegationRefusal::OutOfTurn { status: self.status, wanted }
    }

    fn to(self, status: DelegationStatus) -> DelegationTransition {
        DelegationTransition { state: Self { status, ..self }, effects: Vec::new() }
    }

    fn end(self, status: DelegationStatus, tell: Option<AwcpErrorCode>) -> DelegationTransition {
        let mut effects = Vec::new();
        if self.is_exported() {
            effects.push(DelegationEffect::Revoke);
        }
        // A remote that was never invited need not hear that it is over.
        effects.extend(tell.filter(|_| self.status != DelegationStatus::Created).map(DelegationEffect::Tell));
        effects.push(DelegationEffect::Report);
        DelegationTransition { state: Self { status, ..self }, effects }
    }
}

/// What the remote says of the end decides how it is shown.
const fn ended_by(code: AwcpErrorCode) -> DelegationStatus {
    match code {
        AwcpErrorCode::Cancelled => DelegationStatus::Cancelled,
        AwcpErrorCode::Expired | AwcpErrorCode::StartExpired => DelegationStatus::Expired,
        _ => DelegationStatus::Error,
    }
}

// === impl LeaseTerms ===

impl LeaseTerms {
    /// The remote may take less than was offered, never more.
    pub fn agree(self, constraints: &RemoteConstraints) -> Result<Self, LeaseTermsError> {
        let access_mode = match (self.access_mode, constraints.accepted_access_mode) {
            (offered, None) => offered,
            (AccessMode::Ro, Some(AccessMode::Rw)) => return Err(LeaseTermsError::MoreAccess),
            (_, Some(accepted)) => accepted,
        };
        let ttl = constraints.max_ttl_seconds.map_or(self.ttl, |most| self.ttl.min(Duration::from_secs(most)));
        if ttl.is_zero() { Err(LeaseTermsError::NoTime) } else { Ok(Self { access_mode, ttl }) }
    }
}

// === impl DelegationStatus ===

impl DelegationStatus {
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

impl fmt::Display for DelegationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl DelegationRefusal ===

impl fmt::Display for DelegationRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(status) => write!(f, "the delegation is over ({status})"),
            Self::OutOfTurn { status, wanted } => write!(f, "{wanted} is out of turn: the delegation is {status}"),
            Self::BadTerms(LeaseTermsError::MoreAccess) => {
                f.write_str("the remote accepted `rw` for a folder that is offered `ro`")
            }
            Self::BadTerms(LeaseTermsError::NoTime) => f.write_str("the remote accepted a lease of no time at all"),
        }
    }
}

#[cfg(test)]
mod tests;
