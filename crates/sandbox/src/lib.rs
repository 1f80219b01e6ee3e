//! Walls around a process: which files it can see, whether it can reach the network, whether it can start programs.
//!
//! [`Walls`] says what a process may do. A [`Launcher`] starts a program inside: bubblewrap gives it namespaces of its
//! own where the system allows that, then a second stage of this program ([`enter`]) adds Landlock and seccomp and
//! becomes the program. [`file_view`] is a lighter wall, for programs that we start for ourselves. [`Launcher::prove`] tries to break out of the same walls and reports what held. Nothing is
//! promised that was not proved.

mod file_view;
mod launcher;
mod proof;
mod walls;

#[cfg(all(target_os = "linux", not(attache_portable)))]
mod linux;
#[cfg(all(target_os = "linux", not(attache_portable)))]
use linux as system;

#[cfg(not(all(target_os = "linux", not(attache_portable))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(attache_portable))))]
use portable as system;

pub use self::{
    file_view::file_view,
    launcher::{Launcher, StageCommand},
    proof::{EscapeAttempt, EscapeAttemptResult, Proof},
    system::{enter, probe, receive_listeners},
    walls::{FileOverlay, FileView, Mechanism, NetworkAccess, Walls},
};
