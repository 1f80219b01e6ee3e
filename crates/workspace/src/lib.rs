//! The data plane of a delegation: what a lease shows of a folder and allows in it (`export`), the SSH server through
//! which a remote reaches it (`ssh`), the mount at the remote (`mount`), and the report of what changed (`report`). Two
//! protocols carry the folder: SFTP (`sftp`) and our own (`fs_wire`, `fs_server`, `fs_client`).
//!
//! It knows nothing of hubs, agents or tasks. Who delegates what to whom is decided elsewhere.

pub mod export;
mod fs_client;
mod fs_server;
mod fs_wire;
pub mod mount;
pub mod report;
mod sftp;
pub mod ssh;
