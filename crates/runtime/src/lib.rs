//! The bridge on a person's device: pairs it, beats, takes one run at a time over a channel or by pulling, hands it to the
//! adapter, brings its questions to people and their answers back, and reports it.
//!
//! `Options -> Runtime::new -> Runtime::run`. It has no brain and no store: the hub's runs are the truth, the
//! [`ledger`] is what this device remembers. It reads no environment and prints nothing; [`Notice`]s tell what happens.

mod adapter;
mod artifacts;
mod attachments;
pub mod awcp_policy;
mod backlog;
mod claims;
mod clock;
pub mod collaborator;
pub mod delegator;
mod device;
mod dispatch;
mod error;
mod files;
mod heartbeat;
mod inbox;
pub mod ledger;
mod link;
mod notice;
pub mod pair;
mod presence;
pub mod profile;
mod progress;
mod question;
mod recover;
mod report;
mod runtime;
mod speak;
mod stop;
mod supervise;
mod watch;
mod work;

pub use error::Error;
pub use notice::{Answer, Notice, Observer, Question};
pub use presence::Connection;
pub use runtime::{AdapterSource, Options, Pace, Runtime, Stopped};
pub use stop::Shutdown;
pub use supervise::{AdapterCommand, read_secret};
