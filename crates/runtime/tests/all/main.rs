//! The runtime against a small hub and a small adapter that do what the test says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod adapter;
mod hub;
mod pair;
mod profile;
mod recovery;
mod runs;
mod supervise;
mod world;
