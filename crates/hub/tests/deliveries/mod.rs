//! Callbacks and webhooks, with receivers on loopback that the owner allowed.

mod callbacks;
mod egress;
mod pushes;
mod python;
pub mod receiver;
mod retries;
mod rights;
mod targets;
