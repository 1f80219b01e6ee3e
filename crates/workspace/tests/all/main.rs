//! The data plane with its real parts: OpenSSH, sshfs, FUSE and this machine's file system.

#![allow(clippy::unwrap_used, reason = "a test that can't continue should stop")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod attache_fs;
mod export;
mod mount;
mod mount_point;
mod ssh;
mod sshd;
mod staging;
mod sync;
mod sync_rules;
mod worktree;
