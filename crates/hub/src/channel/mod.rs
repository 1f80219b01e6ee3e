//! Live channels: a peer's frames become actions, events become frames in its outbox, and a connection only drains that
//! outbox.
//!
//! - `session` handles one connection, whatever the transport; `worker` and `engine` are the actions of the two kinds
//!   of peers; `plain` is the small dialect without envelopes.
//! - `outbox` reads pending frames from the store and `frame_text` renders them, so a frame that is sent again is
//!   current.
//! - `live_channels` knows which channels are connected here, and reports to the store in batches when they last sent something.
//!
//! Invariant: nothing here decides. The store says whether a claim holds, a permission is settled or a report is a
//! repeat. Losing all memory in this folder loses nothing.

mod credential_check;
mod engine;
mod frame_text;
mod live_channels;
mod outbox;
mod paths;
mod plain;
mod register;
mod reply_cache;
mod response;
mod schema_cost;
mod session;
mod strict_json;
mod tools;
mod worker;

pub(crate) use engine::started;
pub(crate) use live_channels::{LiveChannels, store_seen_channels};
pub(crate) use register::check_open;
pub(crate) use response::{FrameRefusal, refusal_text, yes_text};
pub(crate) use session::{ChannelDialect, ChannelSession, ConnectionOrigin, SessionEnd};
