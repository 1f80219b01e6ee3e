//! Where the system has no walls: nothing is proved, so nothing is promised.

use std::{convert::Infallible, ffi::OsString, io, net::TcpListener, os::unix::net::UnixStream};

use crate::{EscapeAttemptResult, Launcher, Proof, Walls};

pub(crate) fn bwrap() -> Option<std::path::PathBuf> {
    None
}

pub(crate) fn file_view(_: &std::path::Path, _: &[&std::path::Path], _: &[&std::path::Path]) -> Vec<OsString> {
    Vec::new()
}

/// The second stage fails here, so nothing runs without walls.
pub(crate) fn arguments(launcher: &Launcher, _: &Walls) -> io::Result<Vec<OsString>> {
    let stage = &launcher.stage;
    Ok(std::iter::once(stage.program.clone().into()).chain(stage.enter.iter().cloned()).collect())
}

pub(crate) fn prove(_: &Launcher, _: &[crate::Mechanism]) -> Proof {
    Proof::of_nothing("Attaché has no sandbox for this system. Run such agents on Linux.")
}

pub fn enter(_: impl IntoIterator<Item = OsString>) -> io::Result<Infallible> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn receive_listeners(_: &UnixStream) -> io::Result<Vec<TcpListener>> {
    Err(io::ErrorKind::Unsupported.into())
}

pub fn probe(_: &str) -> io::Result<Vec<EscapeAttemptResult>> {
    Err(io::ErrorKind::Unsupported.into())
}
