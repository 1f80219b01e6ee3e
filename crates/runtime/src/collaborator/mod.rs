//! The role that borrows: takes INVITE, chooses a mount point, answers ACCEPT, mounts at START, and has the last word.
//!
//! It is a library of its own: `Options -> Collaborator::new -> Collaborator::hear`, with the owner's decisions behind
//! [`Policy`], the record behind [`AuditSink`] and the order of things behind [`Scheduler`]. The runtime uses it for runs of
//! the type `awcp.delegation`; `examples/collaborator.rs` adds it to an A2A server that is no hub of ours.

mod audit;
mod borrowed_folder;
pub(crate) mod delegation_run;
mod policy;
mod role;
mod schedule;
mod tunnel;

/// What the binary around this library needs of the data plane.
pub use attache_workspace::mount::{GuardCommand, MissingProgram, MountPoint, MountPointError, missing, run_guard};
pub use audit::{CollaboratorAuditEntry, CollaboratorAuditFile, CollaboratorAuditSink};
pub use borrowed_folder::{BorrowedFolder, LeaseEnd, WorkDone};
pub use policy::{AdvertisedLimits, CollaboratorPolicy, CollaboratorPolicyFile, DelegationConsent};
pub use role::{Collaborator, HostMessageOutcome, Options, PendingOutcome};
pub use schedule::{CollaboratorScheduler, SchedulerPermit, SlotScheduler};
pub use tunnel::{HubTunnelDialer, TunnelDialer};
