//! What only tests need: worlds with a hub in this process, a model that follows a script, and agent
//! programs that do.

#![allow(clippy::disallowed_methods, reason = "`json!` builds what a stub says; nothing is relayed through it")]

pub mod fake_host;
#[cfg(feature = "world")]
pub mod proxy;
pub mod script;
pub mod stub_model;
#[cfg(feature = "world")]
pub mod world;

#[cfg(feature = "world")]
pub use proxy::{FaultCounts, FaultyProxy, ProxyFaults};
pub use stub_model::StubModel;
#[cfg(feature = "world")]
pub use world::{RunningWorld, World};
