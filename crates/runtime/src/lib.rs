//! The bridge on a person's device: pairs it, beats, pulls one run at a time, hands it to the adapter and reports it.
//!
//! `Options -> Runtime::new -> Runtime::run`. It has no brain and no store: the hub's runs are the truth, the
//! [`ledger`] is what this device remembers. It reads no environment and prints nothing; [`Notice`]s tell what happens.

mod adapter;
mod artifacts;
mod backlog;
mod claims;
mod device;
mod dispatch;
mod error;
mod files;
mod heartbeat;
pub mod ledger;
mod link;
mod notice;
pub mod pair;
pub mod profile;
mod progress;
mod recover;
mod report;
mod runtime;
mod stop;
mod supervise;
mod watch;

pub use error::Error;
pub use notice::{Notice, Observer};
pub use runtime::{AdapterSource, Options, Pace, Runtime, Stopped};
pub use stop::Shutdown;
pub use supervise::{AdapterCommand, read_secret};
