//! The endpoints, one file per resource; each adds its methods to `Hub`.

mod account;
pub(crate) mod artifact;
mod conversation;
mod key;
pub(crate) mod pairing;
pub(crate) mod run;
mod runtime;
mod system;
mod worker;
