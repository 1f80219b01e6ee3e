//! The runtime against a fake hub and a scripted adapter.

#![allow(clippy::unwrap_used, reason = "a test that can't continue should stop")]
#![allow(clippy::disallowed_methods, reason = "`json!` builds what a test expects; nothing is relayed through it")]

mod adapter;
mod channel;
mod collaborator;
mod concurrency;
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
