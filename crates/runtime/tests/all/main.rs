//! The runtime against a small hub and a small adapter that do what the test says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "`json!` builds what a test expects; nothing is relayed through it")]

mod adapter;
mod channel;
mod collaborator;
mod concurrency;
mod delegator;
mod example;
mod hub;
mod live_hub;
mod pair;
mod profile;
mod questions;
mod recovery;
mod rotation;
mod runs;
mod supervise;
mod world;
