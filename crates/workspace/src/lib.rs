//! The data plane of a delegation: what of a folder a lease shows and lets happen (`export`), the SSH server through which
//! a remote reaches it (`ssh`), the mount at the remote (`mount`), and what changed in the end (`report`).
//!
//! It knows nothing of hubs, agents or tasks: who lends what to whom is decided elsewhere.

pub mod bench;
pub mod export;
pub mod mount;
pub mod report;
mod sftp;
pub mod ssh;
