//! The last hop on a device: an HTTP service on loopback that hands tasks, one at a time unless told, to a driver.
//!
//! `Options -> Adapter::bind -> Adapter::run`. The service knows HTTP, the run in the slot and its events; a
//! [`Driver`] knows how to put one kind of agent to work. Nothing here knows the hub.

mod artifacts;
mod attachment;
pub mod driver;
mod environment;
mod error;
mod execution;
mod family;
mod group;
mod guard;
mod host;
mod options;
mod output;
pub mod preset;
mod private;
mod process;
mod question;
mod record;
mod scratch;
mod service;
mod slot;
mod spool;
mod surface;

pub use driver::{Driver, Job};
pub use environment::Environment;
pub use execution::Events;
pub use family::{adopt_orphans, keep_inherited_descriptors};
pub use host::{Limit, Memory, Setup};
pub use options::Options;
pub use question::Asker;
pub use service::{Adapter, BindError, try_start};
