//! The data plane of a delegation: what a lease shows of a folder and allows in it (`export`), the SSH server through
//! which a remote reaches it (`ssh`), the mount at the remote (`mount`), and the report of what changed (`report`). Two
//! protocols carry the folder: SFTP (`sftp`) and our own (`fs_wire`, `fs_server`). The remote has two clients of the
//! latter: a file system (`fs_client`), and a copy where there is none (`sync`).
//!
//! It knows nothing of hubs, agents or tasks. Who delegates what to whom is decided elsewhere.

pub mod archive;
mod chunks;
pub mod export;
#[cfg(all(target_os = "linux", not(attache_portable)))]
mod fs_client;
#[cfg(not(all(target_os = "linux", not(attache_portable))))]
mod no_fs_client;
#[cfg(not(all(target_os = "linux", not(attache_portable))))]
use no_fs_client as fs_client;

mod fs_connect;
mod fs_server;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "without the file system, not every request is used"))]
#[cfg_attr(attache_portable, allow(dead_code, reason = "without the file system, not every request is used"))]
mod fs_wire;
mod merge;
pub mod mount;
pub mod report;
mod sftp;
pub mod ssh;
pub mod staging;
mod sync;
