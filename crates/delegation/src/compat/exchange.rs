//! The folders on this machine through which archives go.

use std::path::{Path, PathBuf};

use attache_os::{path_error::private_folder, removal};
use attache_protocol::env::Env;
use attache_workspace::mount::{MountPoint, MountPointError, sweep};

use crate::Error;

/// Copies of folders of this machine that another implementation works in.
#[derive(Debug, Clone)]
pub(crate) struct ExchangeFolders {
    copies: PathBuf,
    staging: PathBuf,
}

/// A folder for files that are not complete yet, on the file system of the copy. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct StagingFolder(PathBuf);

// === impl ExchangeFolders ===

impl ExchangeFolders {
    /// `home` is `$AWCP_HOME`.
    pub(crate) fn at(home: &Path) -> Self {
        let archives = home.join("archives");
        Self { copies: archives.join("copies"), staging: archives.join("staging") }
    }

    /// Removes what an earlier process left behind. Blocks briefly.
    pub(crate) fn sweep(&self) {
        for left in sweep(std::slice::from_ref(&self.copies)) {
            tracing::warn!(copy = %left.display(), "removed a copy of an earlier process");
        }
        let _ = removal::remove(&self.staging);
    }

    /// Blocking.
    pub(super) fn reserve(&self, delegation: &str, env: &Env) -> Result<(MountPoint, StagingFolder), ExchangeError> {
        private_folder(&self.copies).map_err(Error::from)?;
        let staging = StagingFolder::create(self.staging.join(delegation))?;
        Ok((MountPoint::reserve(std::slice::from_ref(&self.copies), delegation, env)?, staging))
    }
}

/// Why there is no place for a copy.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExchangeError {
    #[error(transparent)]
    Folder(#[from] Error),
    #[error(transparent)]
    Place(#[from] MountPointError),
}

// === impl StagingFolder ===

impl StagingFolder {
    pub(super) fn create(path: PathBuf) -> Result<Self, Error> {
        private_folder(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        if let Err(error) = removal::remove(&self.0) {
            tracing::warn!(folder = %self.0.display(), %error, "failed to remove a folder");
        }
    }
}
