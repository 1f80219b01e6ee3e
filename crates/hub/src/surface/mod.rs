//! Wire dialects: each authenticates, turns a request into an action, and renders the response. No rules live here.

#[macro_use]
mod operations;

mod call;
mod call_socket;
mod connect;
pub(crate) mod envelope;
pub(crate) mod extract;
pub mod health;
pub(crate) mod host;
pub(crate) mod in_progress;
pub(crate) mod intake;
pub(crate) mod json_scan;
pub(crate) mod limits;
pub(crate) mod metered;
pub(crate) mod outgoing;
pub mod platform;
pub mod reply;
mod request_log;
mod socket;

pub use extract::{JsonBodyError, PeerAddress, body, caller, read_json};
pub use intake::{accept_body, accept_upload, take_memory};
pub use request_log::{LOG_TARGET, note_principal};
