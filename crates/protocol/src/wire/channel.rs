//! Channels: the durable link of a peer.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AgentId, ChannelId, Json, RuntimeId, Timestamp, wire::event::Event};

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum Transport {
        Websocket = "websocket",
        Sse = "sse",
        JsonRpc = "json_rpc",
        Grpc = "grpc",
        HttpJson = "http_json",
        Stdio = "stdio",
        InProcess = "in_process",
        Custom = "custom",
    }
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum PeerRole {
        Client = "client",
        Host = "host",
        Worker = "worker",
        RemoteRuntime = "remote_runtime",
        PeerAgent = "peer_agent",
        ToolServer = "tool_server",
    }
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum ConnectionState {
        Connected = "connected",
        Disconnected = "disconnected",
    }
}

/// Transport capabilities. They don't count when selecting an agent by capability.
pub const CAPABILITIES: [&str; 6] = ["streaming", "resume", "permissions", "files", "artifacts", "task_delegation"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    pub channel_id: ChannelId,
    pub transport: Transport,
    pub peer_role: PeerRole,
    /// The channel's owner: `agent:agt_…` or `key:key_…`.
    pub account_ref: String,
    pub capabilities: Vec<String>,
    pub last_seen_at: Timestamp,
    /// Identifies the current resume token without revealing it.
    pub resume_token_ref: Option<String>,
    pub native_protocol: Option<String>,
    pub agent_card_ref: Option<String>,
    pub status: ConnectionState,
    pub agent_id: Option<AgentId>,
    pub runtime_id: Option<RuntimeId>,
    /// Where the peer connected from.
    pub address: Option<String>,
    pub device_info: Option<Json>,
    /// The tools the peer registered, as it described them.
    pub tools: Json,
    pub created_at: Timestamp,
    pub connected_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
    /// Why it is disconnected.
    pub reason: Option<String>,
    /// Frames the peer has not acknowledged.
    pub unacknowledged: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelList {
    pub channels: Vec<Channel>,
    pub next_cursor: Option<String>,
}

/// One page of `/channels/{id}/events`. Below the retention floor it starts with `snapshot.repaired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelEventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` to continue.
    pub next: i64,
}

/// `POST /api/a2a/register`. Unknown members are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisterAgent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_info: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairing_token: Option<String>,
}

/// The only response that contains the agent's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredAgent {
    pub api_key: String,
    /// The name as requested.
    pub agent_id: String,
    pub account_id: AgentId,
}
