//! Worlds for tests: a hub in this process, with the agents and devices that a test needs. Never part of the product.

pub mod world;

pub use world::{Started, World};
