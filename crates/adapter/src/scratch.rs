//! A private folder of one run, removed when the run ends.

use std::{
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use attache_os::{machine::is_alive, removal, small_file};
use attache_protocol::env::Env;

use crate::repository;

#[derive(Debug)]
pub(crate) struct ScratchFolder(PathBuf);

const PREFIX: &str = "attache-";

/// Removes folders left behind by killed adapters of this user, and what they list. Those of live adapters are left alone.
pub(crate) fn sweep(below: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        // Without following symlinks, because other users may be able to write to the folder.
        if !entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own) {
            continue;
        }
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if owner.is_none_or(is_alive) {
            continue;
        }
        repository::tidy(&entry.path());
        if let Err(error) = removal::remove(&entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "couldn't remove a leftover private folder");
        }
    }
}

/// Reads a file that a task wrote. `None` if it wrote nothing. Fails with [`io::ErrorKind::InvalidInput`] unless it is
/// a regular file within the limit: reading a pipe would block forever.
pub(crate) fn plain_text(path: &Path, most: u64) -> io::Result<Option<String>> {
    match small_file::read(path, most) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

// === impl ScratchFolder ===

impl ScratchFolder {
    pub(crate) fn create(below: &Path, env: &Env) -> io::Result<Self> {
        let path = below.join(format!("{PREFIX}{}-{}", std::process::id(), env.uuid().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = removal::remove(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "couldn't remove a run's private folder");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_dead_adapters_are_removed() {
        let below = tempfile::tempdir().unwrap();
        let own = ScratchFolder::create(below.path(), &Env::seeded(1)).unwrap();
        std::fs::write(own.file("token"), "secret").unwrap();
        // No process has this id: the kernel's maximum is 2^22.
        for name in ["attache-4999999-0", "attache-x-0", "other"] {
            std::fs::create_dir(below.path().join(name)).unwrap();
            std::fs::write(below.path().join(name).join("token"), "secret").unwrap();
        }
        sweep(below.path());
        let left = |name: &str| below.path().join(name).exists();
        assert_eq!((left("attache-4999999-0"), left("attache-x-0"), left("other")), (false, true, true));
        assert!(own.file("token").exists());
    }
}
