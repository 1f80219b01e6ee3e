//! The only truth: the [`Store`] trait, its SQLite engine, and an in-memory model that specifies both.
//!
//! Every method is an intention (`create_run`, `claim`, …), never SQL. A method that changes something commits the
//! change, its log rows and its idempotency record together, or nothing. Times and ids are given by the caller, so two
//! stores that see the same calls hold the same state, to the byte of the hash chain.

mod asks;
mod channels;
#[cfg(feature = "conformance")]
pub mod conformance;
mod delegations;
mod deliveries;
mod entry;
mod error;
mod excerpt;
mod fault;
pub mod measure;
pub mod memory;
mod outcome;
mod outline;
mod peers;
mod people;
mod pushes;
pub mod record;
mod spending;
pub mod sqlite;
mod store;
mod weight;

pub use asks::Asks;
pub use channels::{Channels, MAX_FRAMES};
pub use delegations::Delegations;
pub use deliveries::Deliveries;
pub use error::{Error, Result, Use};
pub use fault::Fault;
pub use peers::Peers;
pub use people::People;
pub use pushes::{MAX_PUSH_CONFIGS, Pushes};
pub use spending::{MAX_REFUSED, Spending};
pub use store::{Context, Durability, Listener, Store, Woken};
pub use weight::{MAX_PAGE_BYTES, MAX_RUN_LOG_BYTES, Weigh};
