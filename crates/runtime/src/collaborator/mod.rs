//! The role that borrows: takes INVITE, chooses a mount point, answers ACCEPT, mounts at START, and has the last word.
//!
//! It is a library of its own: `Options -> Collaborator::new -> Collaborator::hear`, with the owner's decisions behind
//! [`Policy`], the record behind [`AuditSink`] and the order of things behind [`Scheduler`]. The runtime uses it for runs of
//! the type `awcp.delegation`; `examples/collaborator.rs` adds it to an A2A server that is no hub of ours.

mod audit;
mod lent;
mod policy;
mod role;
pub(crate) mod run;
mod schedule;
mod tunnel;

/// What the binary around this library needs of the data plane.
pub use attache_workspace::mount::{GuardCommand, Missing, Place, Unplaced, missing, run_guard};
pub use audit::{AuditSink, Entry, FileAudit};
pub use lent::{Lent, Over, WorkDone};
pub use policy::{Consent, FilePolicy, Policy, Terms};
pub use role::{Collaborator, Heard, Options, Outcome};
pub use schedule::{Scheduler, Slots, Turn};
pub use tunnel::{HubTunnels, Tunnels};
