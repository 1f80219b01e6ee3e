//! A2A over gRPC: the messages and services of 1.0 and of 0.3, and how they become the model and come from it.
//!
//! The `.proto` files are in `crates/protocol/proto`. The code made from them is committed, so that a build needs no
//! compiler for them.

/// Messages and service of 1.0, the package `lf.a2a.v1`.
#[allow(clippy::all, clippy::use_self, clippy::unwrap_used, missing_debug_implementations, unreachable_pub)]
#[path = "gen/lf_a2a_v1.rs"]
#[rustfmt::skip]
pub mod v1;

/// Messages and service of 0.3, the package `a2a.v1`.
#[allow(clippy::all, clippy::use_self, clippy::unwrap_used, missing_debug_implementations, unreachable_pub)]
#[path = "gen/a2a_v1.rs"]
#[rustfmt::skip]
pub mod v03;
