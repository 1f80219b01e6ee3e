//! The client against small servers that do what the test says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "`json!` builds what a test expects; nothing is relayed through it")]

mod a2a;
mod call;
mod channel;
mod hub;
