//! Integration tests of the protocol crate.

#![allow(clippy::unwrap_used, reason = "a test may stop where it fails")]

mod calls;
mod permission_rules;
mod run_rules;
