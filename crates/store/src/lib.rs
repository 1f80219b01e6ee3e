//! The only source of truth: the [`Store`] trait, its SQLite engine, and an in-memory model that specifies both.
//!
//! Every method is an intention (`create_run`, `claim`, …), never SQL. A method that changes something commits the
//! change, its log rows and its idempotency record together, or not at all. Callers supply times and ids, so two stores
//! that see the same calls hold the same state, down to the bytes of the hash chain.

mod channels;
#[cfg(feature = "conformance")]
pub mod conformance;
mod delegations;
mod deliveries;
mod entry;
mod error;
mod excerpt;
mod fault;
pub mod layer;
pub mod memory;
pub mod metrics;
mod nodes;
mod notifications;
mod outcome;
mod output_search;
mod peers;
mod pushes;
mod quotas;
pub mod record;
mod run_outline;
mod search;
mod shared_values;
pub mod sql;
mod store;
mod store_part;
mod users;
mod weight;
mod worker_requests;
mod worktrees;

pub use channels::{ChannelStore, MAX_FRAMES};
pub use delegations::DelegationStore;
pub use deliveries::DeliveryStore;
pub use error::{Error, InUseReason, Result};
pub use fault::StorageFault;
pub use nodes::NodeStore;
pub use notifications::{MAX_NOTIFICATION_TARGETS, MAX_TENANT_NOTIFICATION_TARGETS, NotificationStore};
pub use peers::PeerStore;
pub use pushes::{MAX_PUSH_CONFIGS, PushStore};
pub use quotas::{MAX_REFUSED, QuotaStore};
pub use search::MAX_SEARCHED;
pub use shared_values::SharedValueStore;
pub use store::{Durability, Store, WakeHint, WakeListener, WriteContext};
pub use users::UserStore;
pub use weight::{MAX_PAGE_BYTES, MAX_RUN_LOG_BYTES, PageWeight};
pub use worker_requests::WorkerRequestStore;
pub use worktrees::WorktreeStore;
