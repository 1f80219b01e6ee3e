//! Failures of files and folders that name the path, and the operations on private files that fail with them.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use attache_protocol::env::Env;

use crate::{lock, private_file};

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct PathError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// See [`private_file::folder`].
pub fn private_folder(path: &Path) -> Result<(), PathError> {
    private_file::folder(path).map_err(PathError::at(path))
}

/// See [`private_file::write_with`].
pub fn replace(path: &Path, content: &[u8], env: &Env) -> Result<(), PathError> {
    private_file::write_with(path, content, env).map_err(PathError::at(path))
}

/// See [`lock::wait`].
pub fn lock(path: &Path) -> Result<File, PathError> {
    lock::wait(path).map_err(PathError::at(path))
}

// === impl PathError ===

impl PathError {
    pub fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { path, source }
    }
}
