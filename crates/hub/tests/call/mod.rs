//! The call API over real sockets: call, watch, result, routing, the header/task form, and agents in three places.

mod api;
mod in_process;
mod refusals;
mod routing;
mod tasks;
mod topologies;
pub mod watcher;
