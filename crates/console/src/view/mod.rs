//! View models: what a page shows, made of wire types by pure functions.

pub(crate) mod agent;
pub(crate) mod amount;
pub(crate) mod asked;
pub(crate) mod caller;
pub(crate) mod channel;
pub(crate) mod chart;
pub(crate) mod delivery;
pub(crate) mod diff;
pub(crate) mod exact;
pub(crate) mod fact;
pub(crate) mod failure;
pub(crate) mod grant;
pub(crate) mod host;
pub(crate) mod html;
pub(crate) mod ledger;
pub(crate) mod log;
pub(crate) mod log_ask;
pub(crate) mod permission;
pub(crate) mod person;
pub(crate) mod plain;
pub(crate) mod quota;
pub(crate) mod recovery;
pub(crate) mod run;
pub(crate) mod sign;
pub(crate) mod status;
pub(crate) mod time;
