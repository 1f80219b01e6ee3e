//! The adapter, the last hop on a device: an HTTP service on loopback that hands tasks to a driver, one at a time by
//! default.
//!
//! `Options -> Adapter::bind -> Adapter::run`. The service handles HTTP, the runs in its slots and their events. A
//! [`Driver`] knows how to run one kind of agent. Nothing here knows about the hub.

mod artifacts;
mod attachment;
pub mod driver;
mod environment;
mod error;
mod event_log;
mod execution;
mod guard;
mod host;
mod listener;
mod options;
mod output;
mod placed_files;
pub mod preset;
mod process;
mod question;
mod repository;
mod resources;
mod scratch;
mod service;
mod slot;
mod spool;
mod surface;
mod working_folder;
mod worktree;

pub use driver::{Driver, DriverRun};
pub use environment::Environment;
pub use execution::EventSink;
pub use host::{
    AllowedHostName, HostFolder, HostMemory, HostNeeds, HostSetup, SandboxLimit, SessionChoice, StoredHostSession,
};
pub use options::{AdapterWalls, HiddenFolder, Options, OtherAgentFolders};
pub use question::{QuestionHandle, UnsolicitedInput};
pub use repository::GuardedRepository;
pub use resources::MemorySize;
pub use service::{Adapter, BindError, try_start};
