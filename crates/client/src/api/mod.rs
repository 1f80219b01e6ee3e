//! The endpoints, one file per resource. Each adds its methods to `HubClient`.

mod access;
mod account;
pub(crate) mod artifact;
pub(crate) mod channel;
mod conversation;
mod delegations;
pub(crate) mod delivery;
mod grant;
mod host_session;
mod input_request;
mod key;
mod names;
mod notification;
pub(crate) mod pairing;
pub(crate) mod permission;
pub(crate) mod register;
pub(crate) mod run;
mod run_view;
mod runtime;
mod system;
mod token;
mod usage;
pub(crate) mod user;
mod worker;
mod worktree;
