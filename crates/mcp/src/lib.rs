//! The MCP server: `delegate`, `delegate_output`, `delegate_cancel` over this machine's daemon, `remote_agent`,
//! `remote_cancel` and `list_agents` over any A2A agent.
//!
//! What the tools stand on are two traits, [`Delegations`] and [`Agents`]; [`Daemon`] and [`Peers`] implement them over the
//! daemon's socket and over hubs and agents elsewhere. [`Service`] makes a [`Server`] per session, for standard input and
//! output or for HTTP ([`http`]). Every era of the protocol that the library knows is spoken; nothing here decides by it but
//! what a client of that era may be sent unasked.
#![allow(clippy::disallowed_methods, reason = "the types of MCP hold JSON as values")]

mod agents;
mod daemon;
mod delegation_result;
mod delegations;
pub mod http;
mod lines;
mod peers;
mod progress;
mod resources;
mod schema;
mod server;
mod session;
mod tool_error;
mod tools;

pub use agents::{
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentTask, CallerKind, FullOutput,
    ListedAgent, PendingApproval, RemoteAgentRequest, ToolCaller, agent_at,
};
pub use daemon::{DaemonBackend, StartDaemon};
pub use delegations::DelegationBackend;
pub use peers::{HubLookup, PeerAgentBackend, PeerAgentOptions};
pub use server::{McpService, McpToolServer, Options};
pub use tool_error::ToolError;
