//! The data plane with its real parts: OpenSSH, sshfs, FUSE, the file system of this machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

mod export;
mod mount;
mod mount_point;
mod ssh;
mod sshd;
