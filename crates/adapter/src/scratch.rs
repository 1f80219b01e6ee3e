//! A private folder of one run, removed when the run ends.

use std::{
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use attache_protocol::env::Env;

#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

// === impl Scratch ===

impl Scratch {
    pub(crate) fn create(below: &Path, env: &Env) -> io::Result<Self> {
        let path = below.join(format!("attache-{}", env.uuid().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "a run's private folder could not be removed");
        }
    }
}
