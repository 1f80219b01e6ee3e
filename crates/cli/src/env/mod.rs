//! The surroundings of a command: the environment, the home folder, saved hubs, installed agent programs, and arguments that many commands take.

pub(crate) mod amount;
pub(crate) mod config;
pub(crate) mod context;
pub(crate) mod contexts;
pub(crate) mod executor;
pub(crate) mod home;
pub(crate) mod hosts;
pub(crate) mod ids;
pub(crate) mod log;
pub(crate) mod permission_mode;
pub(crate) mod walls;
