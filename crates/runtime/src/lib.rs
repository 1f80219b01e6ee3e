//! The runtime on a person's device: pairs the device, sends heartbeats, takes runs over a channel or by pulling, hands
//! them to the adapter, relays questions and answers, and reports the outcome.
//!
//! `Options -> RuntimeService::new -> RuntimeService::run`. It makes no decisions about the task and has no store: the
//! hub owns the runs, and the [`ledger`] is what this device remembers. It reads no environment variables and prints
//! nothing. [`RuntimeNotice`]s report what happens.

mod adapter;
mod artifacts;
mod attachments;
mod backlog;
mod claim_watch;
mod claims;
mod clock;
mod connection_status;
mod delegation_run;
mod device;
mod dispatch;
mod error;
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
mod worktree_decisions;

pub use connection_status::ConnectionStatus;
pub use error::Error;
pub use notice::{AnswerKind, Observer, QuestionNotice, RuntimeNotice};
pub use runtime::{AdapterSource, Options, RuntimeService, RuntimeTimings, ShutdownOutcome};
pub use shutdown::Shutdown;
pub use supervise::{AdapterCommand, read_secret};
