//! The agents that people have, from end to end: a hub, a paired device that supervises the host by itself, and the host's
//! own program at work with a model that does as its prompt says. Nothing leaves loopback.
//!
//! `./test` installs Claude Code and Codex into the build folder, `./test --agents` the others as well; a host that is not
//! there says that it is skipped. What was seen goes into the matrix of docs/hosts.md.

mod device;
mod hostile;
mod installed;
mod matrix;
mod model;
mod programs;
mod real;
