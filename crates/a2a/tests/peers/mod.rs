//! Agents outside: their runs are done there, once, whoever is restarted meanwhile.

mod hubs;
mod ours;
mod script;
mod trouble;
