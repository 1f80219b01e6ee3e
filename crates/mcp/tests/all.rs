//! The MCP server from outside: raw JSON over an in-process pipe and over HTTP, in both eras of the protocol. The
//! backends are fakes whose timing the tests control.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]
#![allow(unreachable_pub, missing_debug_implementations, reason = "nobody uses a test from outside")]

mod agents;
mod daemon;
mod delegate;
mod elicitation;
mod eras;
mod fakes;
mod http;
mod peers;
mod pipe;
