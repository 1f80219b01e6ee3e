//! Wire dialects: each authenticates, turns a request into an action, and renders the answer. No rule lives here.

mod call;
mod connect;
pub(crate) mod envelope;
pub(crate) mod extract;
pub mod health;
pub(crate) mod host;
pub(crate) mod intake;
pub(crate) mod limits;
pub(crate) mod metered;
pub mod platform;
pub mod reply;
mod request_log;
pub(crate) mod scan;
pub(crate) mod seat;
mod socket;
mod watch;

pub use extract::{Peer, Unreadable, body, caller, read_json};
pub use intake::accept_body;
pub use request_log::{REQUESTS, note_principal};
