//! The last hop on a device: an HTTP service on loopback that hands tasks, one at a time unless told, to a driver.
//!
//! `Options -> Adapter::bind -> Adapter::run`. The service knows HTTP, the run in the slot and its events; a
//! [`Driver`] knows how to put one kind of agent to work. Nothing here knows the hub.

mod artifacts;
mod attachment;
pub mod driver;
mod environment;
mod error;
mod event_log;
mod execution;
mod guard;
mod host;
mod options;
mod output;
pub mod preset;
mod private;
mod process;
mod process_group;
mod process_tree;
mod question;
mod scratch;
mod service;
mod slot;
mod spool;
mod surface;

pub use driver::{Driver, DriverRun};
pub use environment::Environment;
pub use execution::EventSink;
pub use host::{HostMemory, HostSetup, SandboxLimit};
pub use options::Options;
pub use process_tree::{adopt_orphans, keep_inherited_descriptors};
pub use question::Asker;
pub use service::{Adapter, BindError, try_start};
