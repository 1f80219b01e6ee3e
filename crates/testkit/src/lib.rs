//! Worlds for tests: a hub in this process, with the agents and devices that a test needs. Never part of the product.

pub mod proxy;
pub mod world;

pub use proxy::{Faults, Harm, Proxy};
pub use world::{Started, World};
