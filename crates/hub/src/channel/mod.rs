//! Live channels: what a peer says becomes an action, what happens becomes frames in its outbox, and a connection is only a
//! way to empty that outbox.
//!
//! - `session` is one connection's conversation, whatever carries it; `worker` and `engine` are the actions of the two
//!   kinds of peers; `plain` is the small dialect without envelopes.
//! - `outbox` reads the frames that wait in the store and `text` makes their words, so a frame that is sent again is as
//!   true as the first time.
//! - `live` knows which channels are connected here, and tells the store in batches that they were heard.
//!
//! Invariant: nothing here decides. Whether a claim holds, a permission is settled or a report was heard before is said by
//! the store; losing everything in this folder's memory loses nothing.

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
mod session;
mod strict_json;
mod tools;
mod weight;
mod worker;

pub(crate) use engine::started;
pub(crate) use live_channels::{LiveChannels, store_seen_channels};
pub(crate) use response::{FrameRefusal, refusal_text, yes_text};
pub(crate) use session::{ChannelDialect, ChannelSession, ConnectionOrigin, SessionEnd};
