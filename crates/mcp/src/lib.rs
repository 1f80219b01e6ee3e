//! The MCP server: `delegate`, `delegate_output`, `delegate_cancel` over this machine's daemon, `remote_agent`,
//! `remote_cancel` and `list_agents` over any A2A agent.
//!
//! The tools use two traits, [`DelegationBackend`] and [`AgentBackend`]. [`DaemonBackend`] implements the first over
//! the daemon's socket, [`PeerAgentBackend`] the second over hubs and remote agents. [`McpService`] creates one
//! [`McpToolServer`] per session, for stdio or HTTP ([`http`]). All protocol versions that the library knows are
//! supported. The version matters here only for unsolicited notifications.
#![allow(clippy::disallowed_methods, reason = "the types of MCP hold JSON as values")]

mod agents;
mod daemon;
mod delegation_result;
mod delegations;
mod elicitation;
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
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentQuestion, AgentTask, AnswerContent,
    CallerKind, FullOutput, ListedAgent, PendingApproval, RemoteAgentRequest, ToolCaller, agent_at,
};
pub use daemon::{DaemonBackend, StartDaemon};
pub use delegations::DelegationBackend;
pub use elicitation::RefusedForms;
pub use peers::{HubLookup, PeerAgentBackend, PeerAgentOptions};
pub use server::{McpService, McpToolServer, Options};
pub use tool_error::ToolError;
