//! Channels, the frames that wait for their peers, and the runs their peers follow.

use attache_protocol::{
    Actor, AgentId, ChannelId, InputId, Json, NodeId, PermissionId, RunId, RuntimeId, TenantId, Timestamp,
    WorkerRequestId,
    secret::SecretHash,
    wire::{
        channel::{PeerRole, Transport},
        event::Event,
    },
};

/// One connection of a channel: the one that got this resume token. A channel that was resumed since, or superseded, has
/// another one or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelConnection {
    pub channel: ChannelId,
    /// The hash of the resume token that the connection gave to its peer.
    pub resume: SecretHash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChannel {
    pub id: ChannelId,
    /// The node that its peer is connected to, if several serve the database.
    pub node: Option<NodeId>,
    pub transport: Transport,
    pub peer_role: PeerRole,
    /// `agent:agt_…` or `key:key_…`.
    pub account_ref: String,
    /// For a worker's channel: the runtime whose claims are made over it.
    pub runtime: Option<RuntimeId>,
    /// A JSON array of strings.
    pub capabilities: Json,
    pub native_protocol: Option<String>,
    /// A JSON array of tools, as described by the peer.
    pub tools: Json,
    pub device_info: Option<Json>,
    pub address: Option<String>,
    /// The hash of the resume token given to the peer.
    pub resume: SecretHash,
    /// The runs the worker is executing, if it says so: the claims it knows of.
    pub running: Option<Vec<RunId>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelRecord {
    pub id: ChannelId,
    /// The node of its newest connection, if several serve the database.
    pub node: Option<NodeId>,
    pub tenant: TenantId,
    pub transport: Transport,
    pub peer_role: PeerRole,
    pub account_ref: String,
    /// The actor that opened it. No one else can resume it.
    pub principal: Actor,
    pub agent: Option<AgentId>,
    pub runtime: Option<RuntimeId>,
    pub capabilities: Json,
    pub native_protocol: Option<String>,
    pub tools: Json,
    pub device_info: Option<Json>,
    pub address: Option<String>,
    /// The hash of its resume token. `None` once it was superseded.
    pub resume: Option<SecretHash>,
    pub connected: bool,
    pub created_at: Timestamp,
    pub connected_at: Timestamp,
    pub last_seen_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
    /// Why it is disconnected.
    pub reason: Option<String>,
    /// Frames up to this seq are acknowledged or were dropped.
    pub floor: i64,
    /// The seq of the newest frame.
    pub head: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelResume {
    pub channel: ChannelId,
    /// The node that its peer is connected to now.
    pub node: Option<NodeId>,
    pub token: SecretHash,
    /// Replaces `token`.
    pub fresh: SecretHash,
    /// The newest frame the peer has. Everything up to it is acknowledged.
    pub last_seq: i64,
    pub address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelResumption {
    pub channel: ChannelRecord,
    /// Frames that the peer lacks and that can't be resent: from, to.
    pub missing: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelFilter {
    pub connected: Option<bool>,
    pub agent: Option<AgentId>,
}

/// A frame that must reach its peer, as a reference. Its text is rendered when it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutboxFrame {
    /// To a worker: it has claimed this run.
    Execute { run: RunId, epoch: i64 },
    /// To a worker: it no longer holds this run.
    Cancel { run: RunId },
    /// To a worker: unsolicited input from its caller.
    Input { run: RunId, input: InputId },
    /// To a worker: its permission request is settled.
    Permission { permission: PermissionId },
    /// To a worker: its question was answered.
    Answer { ask: WorkerRequestId },
    /// To an engine: the worker asks for one of its tools to be called.
    ToolCall { ask: WorkerRequestId },
    /// To an engine: an event of a run it follows.
    Event { run: RunId, seq: i64 },
}

/// Frames after a seq.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxFrames {
    pub frames: Vec<(i64, OutboxFrame)>,
    pub floor: i64,
    pub head: i64,
}

/// A run whose events go to a channel, because its peer requested the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFollow {
    pub channel: ChannelId,
    /// The message id of the request that created the run.
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

// === impl ChannelRecord ===

impl ChannelRecord {
    /// Whether this is the channel's newest connection, even if it was closed.
    pub fn is_current(&self, connection: ChannelConnection) -> bool {
        self.id == connection.channel && self.resume == Some(connection.resume)
    }
}

/// Identifies a worker's report, so that a repeated one is applied once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportKey {
    /// The channel whose frames are counted. `None` if the worker numbers the reports of its claim itself.
    pub source: Option<ChannelId>,
    pub seq: i64,
}
