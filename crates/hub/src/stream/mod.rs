//! Reading a log from a cursor: snapshot, past events, then live events.
//!
//! A follower reads pages from the store and waits on the bus in between. What it shows depends only on the log, so
//! early and late readers see the same.

mod call;
mod channel;
pub(crate) mod feed;
mod run;
mod slots;
mod sse;
mod tenant;

pub use attache_store::record::{OutlineScope, RunOutline};
pub use call::{CallDetail, CallFollow, CallStreamEvent};
pub use channel::ChannelFollow;
pub use run::RunFollow;
pub(crate) use slots::{StreamSlot, StreamSlots};
pub(crate) use sse::events;
pub use sse::{OpenStream, SseSource, respond};
pub use tenant::{TenantChanges, TenantFollow};
