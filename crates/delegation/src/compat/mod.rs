//! The edge to the reference implementation of AWCP, which doesn't speak A2A: bare JSON messages over its own HTTP routes,
//! events as a stream, and the folder as a ZIP archive in a message.
//!
//! `messages` maps them to ours. `conversation` talks to its executor in the place of the A2A conversation; `endpoint` is
//! what its delegator talks to, over `routes`, behind `server` and `request_guard`. Both lead into a delegation like any other, so the rules about folders are in one place:
//! the archive is packed from a copy of the export, or unpacked into a folder that is exported.

mod assignment;
mod assignment_table;
pub(crate) mod conversation;
mod endpoint;
mod exchange;
mod executor_client;
mod messages;
mod request_guard;
mod routes;
mod server;
mod work_copy;

pub use endpoint::{CompatEndpoint, CompatOptions};
pub(crate) use exchange::ExchangeFolders;

use attache_workspace::archive::ArchiveLimits;

/// The name of a folder in the messages and archives that we send.
const RESOURCE: &str = "workspace";

/// The length of a message with the largest archive, in base64.
fn max_message() -> usize {
    usize::try_from(ArchiveLimits::default().packed / 3 * 4).unwrap_or(usize::MAX) + (1 << 20)
}
