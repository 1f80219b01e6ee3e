//! The delegator's side of a delegation: `created → invited → accepted → started → running`, then one of four ends.
//! However it ends, the folder is revoked before anyone is notified.

use crate::text_enum;
use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    time::Timestamp,
    wire::awcp::{AccessMode, AwcpErrorCode, RemoteConstraints},
};

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    #[schema(as = DelegationStatus)]
    pub enum DelegationStatus {
        /// Queued; not yet announced.
        Created = "created",
        /// INVITE was sent.
        Invited = "invited",
        /// ACCEPT was received, and the terms are agreed.
        Accepted = "accepted",
        /// START was sent. From here on, there is an export to revoke.
        Started = "started",
        /// The remote has mounted the folder and works in it.
        Running = "running",
        Completed = "completed",
        Error = "error",
        Cancelled = "cancelled",
        Expired = "expired",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DelegationState {
    pub status: DelegationStatus,
    pub terms: LeaseTerms,
    /// When it expires: the invitation at first, the lease once there is one.
    pub deadline: Timestamp,
}

/// The access mode and duration of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseTerms {
    pub access_mode: AccessMode,
    pub ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationCommand {
    /// INVITE was sent.
    Invite,
    /// ACCEPT was received.
    Accept(RemoteConstraints),
    /// The export exists, and START is sent.
    Start,
    /// The remote reported progress.
    Work,
    /// DONE was received.
    Complete,
    /// ERROR was received, or the remote is permanently unreachable.
    Fail(AwcpErrorCode),
    /// A person or the delegating agent cancelled it.
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

/// What to do because of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationEffect {
    /// Close the export: revoke its key and cut its connections.
    Revoke,
    /// Send this ERROR to the remote and cancel its task.
    Tell(AwcpErrorCode),
    /// Write the report and the outcome, and wake waiters.
    Report,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelegationRefusal {
    /// It has already ended.
    Ended(DelegationStatus),
    /// The command is not valid in this state.
    OutOfTurn { status: DelegationStatus, wanted: &'static str },
    /// The remote accepted more than was offered, or unusable terms.
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

    /// It leaves the queue: the invitation's deadline starts now, however long it was queued.
    #[must_use]
    pub fn released(self, now: Timestamp) -> Self {
        Self { deadline: now.plus(self.terms.ttl), ..self }
    }

    /// Applies a command at a point in time.
    pub fn step(self, command: &DelegationCommand, now: Timestamp) -> Result<DelegationTransition, DelegationRefusal> {
        if self.status.has_ended() {
            return Err(DelegationRefusal::Ended(self.status));
        }
        match command {
            // A late end is still accepted, but nothing starts or continues after the deadline.
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

    /// Whether the remote has access that can be revoked.
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
        // A remote that was never invited is not notified.
        effects.extend(tell.filter(|_| self.status != DelegationStatus::Created).map(DelegationEffect::Tell));
        effects.push(DelegationEffect::Report);
        DelegationTransition { state: Self { status, ..self }, effects }
    }
}

/// The remote's error code decides the final status.
const fn ended_by(code: AwcpErrorCode) -> DelegationStatus {
    match code {
        AwcpErrorCode::Cancelled => DelegationStatus::Cancelled,
        AwcpErrorCode::Expired | AwcpErrorCode::StartExpired => DelegationStatus::Expired,
        _ => DelegationStatus::Error,
    }
}

// === impl LeaseTerms ===

impl LeaseTerms {
    /// The remote may accept less than was offered, never more.
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
            Self::Ended(status) => write!(f, "the delegation has ended ({status})"),
            Self::OutOfTurn { status, wanted } => write!(f, "{wanted} is not possible: the delegation is {status}"),
            Self::BadTerms(LeaseTermsError::MoreAccess) => {
                f.write_str("the remote accepted `rw` for a folder offered as `ro`")
            }
            Self::BadTerms(LeaseTermsError::NoTime) => f.write_str("the remote accepted a lease without a duration"),
        }
    }
}

#[cfg(test)]
mod tests;
