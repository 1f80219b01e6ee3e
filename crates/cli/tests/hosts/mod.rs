//! Real agent hosts end to end: a hub, a paired device that supervises the host, and the host's own program with a stub
//! model that follows its prompt. Nothing leaves loopback.
//!
//! `./test` installs Claude Code and Codex into the build folder, `./test --agents` the others too; tests of missing
//! hosts report that they are skipped. The results go into the matrix of docs/hosts.md.

pub mod device;
mod hostile;
mod installed;
mod matrix;
pub mod model;
pub mod programs;
mod real;
mod sessions;
pub mod walled;
