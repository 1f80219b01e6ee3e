//! The client of A2A agents against a server that speaks both versions.

mod cards;
mod operations;
mod server;
