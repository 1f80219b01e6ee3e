//! Channels, the frames that wait for their peers, and the runs that their peers follow.

use attache_protocol::{
    AgentId, ChannelId, InputId, Json, PermissionId, RunId, RuntimeId, TenantId, Timestamp, WorkerRequestId,
    secret::SecretHash,
    wire::{
        channel::{PeerRole, Transport},
        event::Event,
    },
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChannel {
    pub id: ChannelId,
    pub transport: Transport,
    pub peer_role: PeerRole,
    /// `agent:agt_…` or `key:key_…`.
    pub account_ref: String,
    /// Of a channel that works: whose claims are made over it.
    pub runtime: Option<RuntimeId>,
    /// A JSON array of words.
    pub capabilities: Json,
    pub native_protocol: Option<String>,
    /// A JSON array of tools as the peer described them.
    pub tools: Json,
    pub device_info: Option<Json>,
    pub address: Option<String>,
    /// The hash of the resume token that was given to the peer.
    pub resume: SecretHash,
    /// The runs that the worker executes right now, if it says so: the claims that it knows of.
    pub running: Option<Vec<RunId>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRecord {
    pub id: ChannelId,
    pub tenant: TenantId,
    pub transport: Transport,
    pub peer_role: PeerRole,
    pub account_ref: String,
    /// The actor that opened it; nobody else resumes it.
    pub principal: String,
    pub agent: Option<AgentId>,
    pub runtime: Option<RuntimeId>,
    pub capabilities: Json,
    pub native_protocol: Option<String>,
    pub tools: Json,
    pub device_info: Option<Json>,
    pub address: Option<String>,
    /// Of the token that resumes it; `None` once it was superseded.
    pub resume: Option<SecretHash>,
    pub connected: bool,
    pub created_at: Timestamp,
    pub connected_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
    /// Why it is disconnected.
    pub reason: Option<String>,
    /// Frames up to this seq are acknowledged or were given up.
    pub floor: i64,
    /// The seq of the newest frame.
    pub head: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelResume {
    pub channel: ChannelId,
    pub token: SecretHash,
    /// Takes the place of `token`.
    pub fresh: SecretHash,
    /// The newest frame that the peer has; everything up to it is acknowledged.
    pub last_seq: i64,
    pub address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelResumption {
    pub channel: ChannelRecord,
    /// Frames that the peer lacks and that cannot be sent again: from, to.
    pub missing: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFilter {
    pub connected: Option<bool>,
    pub agent: Option<AgentId>,
}

/// A frame that must reach its peer, as a reference to what it tells of: its text is made when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frame {
    /// To a worker: it has claimed this run.
    Execute { run: RunId, epoch: i64 },
    /// To a worker: it does not hold this run any more.
    Cancel { run: RunId },
    /// To a worker: its caller said something without being asked.
    Input { run: RunId, input: InputId },
    /// To a worker: its permission request is settled.
    Permission { permission: PermissionId },
    /// To a worker: its question has an answer.
    Answer { ask: WorkerRequestId },
    /// To an engine: the worker wants one of its tools to be called.
    ToolCall { ask: WorkerRequestId },
    /// To an engine: an event of a run that it follows.
    Event { run: RunId, seq: i64 },
}

/// Frames after a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxFrames {
    pub frames: Vec<(i64, Frame)>,
    pub floor: i64,
    pub head: i64,
}

/// A run whose events go to a channel, because its peer asked for the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFollow {
    pub channel: ChannelId,
    /// Of the request that made the run.
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowRecord {
    pub channel: ChannelId,
    pub run: RunId,
    pub message: String,
    /// Events of the run up to this seq are frames of the channel.
    pub pushed: i64,
}

/// Events of a channel's stream after a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelEvents {
    pub events: Vec<Event>,
    /// Everything up to this seq may have been removed by retention; 0 when nothing was.
    pub floor: i64,
    pub last_seq: i64,
}

/// Tells one report of a worker from another, so that one that comes twice is heard once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportKey {
    /// The channel whose frames are counted; `None` when the worker counts the reports of its claim itself.
    pub source: Option<ChannelId>,
    pub seq: i64,
}
