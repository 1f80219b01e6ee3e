//! View models: what a page shows, made of wire types by pure functions.

pub(crate) mod agent;
pub(crate) mod caller;
pub(crate) mod failure;
pub(crate) mod host;
pub(crate) mod html;
pub(crate) mod log;
pub(crate) mod plain;
pub(crate) mod run;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod time;
