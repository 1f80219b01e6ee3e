//! The actions: what can be asked of the hub, one file per action or small family.
//!
//! Each is a method of [`crate::Handle`] that takes the caller and wire types and answers with wire types. The rules of who
//! may do what and of what is well-formed live here, so every surface has the same ones.

mod access;
mod account;
mod approval;
mod artifact;
mod audit;
mod await_call;
mod call;
mod called;
mod caller;
mod card;
mod channel;
pub(crate) mod check;
mod conversation;
mod create_run;
mod delegate;
mod delegation;
mod delete;
mod delivery;
mod face;
mod finish;
mod guest;
mod heartbeat;
mod input;
mod key;
mod message;
mod named;
mod names;
mod pairing;
mod peer;
mod permission;
mod progress;
mod pull;
mod push;
mod quota;
mod register;
mod route;
mod run;
mod runtime;
mod session;
mod switches;
mod task;
mod token;
mod tools;
mod usage;
mod user;
mod waits_for;

pub(crate) use call::{about_call, call_in_path};
pub(crate) use guest::Guests;
pub(crate) use progress::worker_error;

pub use artifact::Upload;
pub use channel::ChannelQuery;
pub use check::PageRequest;
pub use create_run::{CallHeaders, CreatedRun};
pub use delivery::DeliveryQuery;
pub use face::Face;
pub use peer::{Outside, OutsideChanges};
pub use permission::{PermissionQuery, Place};
pub use pull::Pulled;
pub use push::{Push, PushVersion};
pub use register::Registered;
pub use run::RunQuery;
pub use task::{OwnTask, TaskQuery, TaskState, Tasks};
pub use usage::{RecordQuery, UsageQuery};
