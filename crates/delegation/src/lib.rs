//! Delegates folders to agents on other machines (AWCP), and works in folders that other machines delegate.
//!
//! Two roles, each a library that works without a hub: [`delegator`] delegates folders of this machine (the daemon),
//! and [`collaborator`] works in folders of other machines. [`awcp_policy`] reads the policy file of both. `compat` is the edge
//! to the reference implementation of AWCP, which speaks another dialect.

pub mod awcp_policy;
pub mod collaborator;
mod compat;
pub mod delegator;
mod error;

pub use compat::{CompatEndpoint, CompatOptions};
pub use error::Error;
