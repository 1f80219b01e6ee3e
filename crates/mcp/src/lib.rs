//! The MCP server: `delegate`, `delegate_output`, `delegate_cancel` over this machine's daemon, `remote_agent`,
//! `remote_cancel` and `list_agents` over any A2A agent.
//!
//! What the tools stand on are two traits, [`Delegations`] and [`Agents`]; [`Daemon`] and [`Peers`] implement them over the
//! daemon's socket and over hubs and agents elsewhere. [`Service`] makes a [`Server`] per session, for standard input and
//! output or for HTTP ([`http`]). Every era of the protocol that the library knows is spoken; nothing here decides by it but
//! what a client of that era may be sent unasked.
#![allow(clippy::disallowed_methods, reason = "the types of MCP hold JSON as values")]

mod agents;
mod answer;
mod attend;
mod daemon;
mod delegations;
pub mod http;
mod lines;
mod peers;
mod resources;
mod schema;
mod server;
mod session;
mod tools;
mod trouble;

pub use agents::{
    Agent, Agents, Answer, Approval, Ask, Attendance, Call, CallRef, Caller, FullOutput, State, Task, agent_at,
};
pub use daemon::{Daemon, Wake};
pub use delegations::Delegations;
pub use peers::{FindHub, Peers, PeersOptions};
pub use server::{Options, Server, Service};
pub use trouble::Trouble;
