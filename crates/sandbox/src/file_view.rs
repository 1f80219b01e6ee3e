//! Walls for the programs of the system that we start ourselves, such as git: where they work, they may be led to any file of
//! this user, so they see only those that they need.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::system;

/// bubblewrap, where it is installed and works.
static BWRAP: LazyLock<Option<PathBuf>> = LazyLock::new(system::bwrap);

/// The words before such a program and its arguments. It sees the programs of the system and these files and folders, can write
/// to the latter ones, and has no network. No words where there are no namespaces: the program starts as it is.
///
/// Folders are found by their paths, so others must not be able to replace them.
pub fn file_view(read: &[&Path], write: &[&Path]) -> Vec<OsString> {
    BWRAP.as_ref().map_or_else(Vec::new, |program| system::file_view(program, read, write))
}
