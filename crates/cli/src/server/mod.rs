//! What commands run or start on this machine: a hub, a supervised adapter, the delegation daemon, the collaborator role.

pub(crate) mod artifact_bucket;
pub(crate) mod collaborator_setup;
pub(crate) mod daemon_access;
mod hub_agents;
pub(crate) mod keep;
pub(crate) mod local_server;
pub(crate) mod port_conflict;
pub(crate) mod process;
pub(crate) mod shared_database;
pub(crate) mod supervised_adapter;
pub(crate) mod tls;
