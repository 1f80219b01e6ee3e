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
mod claim_watch;
mod claims;
mod clock;
pub mod collaborator;
mod connection_status;
pub mod delegator;
mod device;
mod dispatch;
mod error;
mod files;
mod heartbeat;
mod hub_transport;
mod inbox;
pub mod ledger;
mod link;
mod notice;
pub mod pair;
pub mod profile;
mod progress;
mod question_bridge;
mod recover;
mod report;
mod runtime;
mod shutdown;
mod supervise;
mod work_loop;

pub use connection_status::ConnectionStatus;
pub use error::Error;
pub use notice::{AnswerNotice, Notice, Observer, QuestionNotice};
pub use runtime::{AdapterSource, Options, RuntimeService, RuntimeTimings, ShutdownOutcome};
pub use shutdown::Shutdown;
pub use supervise::{AdapterCommand, read_secret};
