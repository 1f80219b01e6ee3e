//! Events of a stream, as JSON pages and as server-sent events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Json, Timestamp, rules::run::Status};

/// One event. `seq` starts at 1 and has no gaps within its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub seq: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub at: Timestamp,
    pub data: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` to go on.
    pub next: i64,
    /// The run's state when the page was read.
    pub status: Status,
}

pub const SNAPSHOT_REPAIRED: &str = "snapshot.repaired";

/// The data of `snapshot.repaired`: these events are gone, and this is the state that they led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Repaired {
    pub missing: Range,
    pub snapshot: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    pub from: i64,
    pub to: i64,
}

/// A reader fell too far behind: these events of its stream were left out.
pub const STREAM_GAP: &str = "stream.gap";

/// The event classes that only the run's own stream shows.
pub mod kind {
    pub const PROGRESS: &str = "task.progress";
    pub const CHUNK: &str = "task.chunk";
    pub const THOUGHT: &str = "task.thought";
    pub const LOG: &str = "task.log";
    pub const TOOL_CALL: &str = "task.tool_call";
}
