//! Channels over real sockets: complete sessions of workers and engines, and everything that can go wrong in them.

mod antipatterns;
mod duplicates;
mod engine;
mod fuzz;
mod identity;
mod large;
mod malformed;
pub mod peer;
mod plain;
mod python;
mod resume;
mod silence;
mod sse;
mod storm;
mod tools;
mod worker;
