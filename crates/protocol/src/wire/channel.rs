//! Channels: the lasting identity of a peer's connection.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AgentId, ChannelId, Json, RuntimeId, Timestamp, wire::event::Event};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Websocket,
    Sse,
    JsonRpc,
    Grpc,
    HttpJson,
    Stdio,
    InProcess,
    Custom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PeerRole {
    Client,
    Host,
    Worker,
    RemoteRuntime,
    PeerAgent,
    ToolServer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    Connected,
    Disconnected,
}

/// The words for what a transport can do. Whoever looks for an agent that can do something does not mean these.
pub const CAPABILITIES: [&str; 6] = ["streaming", "resume", "permissions", "files", "artifacts", "task_delegation"];

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Channel {
    pub channel_id: ChannelId,
    pub transport: Transport,
    pub peer_role: PeerRole,
    /// Whose channel it is: `agent:agt_…` or `key:key_…`.
    pub account_ref: String,
    pub capabilities: Vec<String>,
    pub last_seen_at: Timestamp,
    /// Names the resume token that is good now, without being it.
    pub resume_token_ref: Option<String>,
    pub native_protocol: Option<String>,
    pub agent_card_ref: Option<String>,
    pub status: ConnectionState,
    pub agent_id: Option<AgentId>,
    pub runtime_id: Option<RuntimeId>,
    /// Where the peer connected from.
    pub address: Option<String>,
    pub device_info: Option<Json>,
    /// The tools that the peer registered, as it described them.
    pub tools: Json,
    pub created_at: Timestamp,
    pub connected_at: Timestamp,
    pub disconnected_at: Option<Timestamp>,
    /// Why it is disconnected.
    pub reason: Option<String>,
    /// Frames that the peer has not acknowledged.
    pub unacknowledged: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelList {
    pub channels: Vec<Channel>,
    pub next_cursor: Option<String>,
}

/// One page of `/channels/{id}/events`. Below the retention floor it begins with `snapshot.repaired`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelEventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` to go on.
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

/// The one answer that shows an agent's own key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegisteredAgent {
    pub api_key: String,
    /// The name, as it was given.
    pub agent_id: String,
    pub account_id: AgentId,
}

macro_rules! words {
    ($($name:ident: $($variant:ident $text:literal),*;)*) => {$(
        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    )*};
}

words! {
    Transport: Websocket "websocket", Sse "sse", JsonRpc "json_rpc", Grpc "grpc", HttpJson "http_json", Stdio "stdio",
        InProcess "in_process", Custom "custom";
    PeerRole: Client "client", Host "host", Worker "worker", RemoteRuntime "remote_runtime", PeerAgent "peer_agent",
        ToolServer "tool_server";
    ConnectionState: Connected "connected", Disconnected "disconnected";
}
