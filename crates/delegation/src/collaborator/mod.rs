//! The collaborator role: receives INVITE, chooses a mount point, answers ACCEPT, mounts the folder on START, and
//! reports DONE or ERROR.
//!
//! It is a library of its own: `Options -> Collaborator::new -> Collaborator::handle_message`. A [`CollaboratorPolicy`]
//! makes the owner's decisions, a [`CollaboratorAuditSink`] keeps the records and a [`CollaboratorScheduler`] decides
//! the order. The runtime uses it for runs of the type `awcp.delegation`. `examples/collaborator` adds it to an A2A
//! server that isn't a hub.

mod audit;
mod borrowed_folder;
mod direct_dial;
mod policy;
mod role;
mod schedule;
mod tunnel;

/// The parts of the data plane that the embedding program needs.
pub use attache_workspace::mount::{GuardCommand, MissingProgram, MountPoint, MountPointError, missing, run_guard};
pub use audit::{CollaboratorAuditEntry, CollaboratorAuditFile, CollaboratorAuditSink};
pub use borrowed_folder::{BorrowedFolder, LeaseEnd, WorkDone};
pub use direct_dial::DirectDialGuard;
pub use policy::{AdvertisedLimits, CollaboratorPolicy, CollaboratorPolicyFile, DelegationConsent};
pub use role::{Collaborator, DelegatorMessageOutcome, Options, PendingOutcome, RemoteWalls};
pub use schedule::{CollaboratorScheduler, SchedulerPermit, SlotScheduler};
pub use tunnel::{HubTunnelDialer, TunnelDialer};
