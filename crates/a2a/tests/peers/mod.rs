//! Agents outside: their runs are done there, once, whoever is restarted meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bindings;
mod cards;
mod hubs;
mod notices;
mod ours;
mod script;
mod trouble;
mod waiting;
