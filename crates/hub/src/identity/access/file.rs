//! The access rules file: read and replaced as a unit.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use attache_os::private_file;
use attache_protocol::access_file::RulesFileReport;

#[derive(Debug, Clone)]
pub(crate) struct RulesFile {
    path: PathBuf,
}

/// Why the file can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub(crate) struct RulesFileError {
    path: String,
    /// With line and column if known.
    problem: String,
}

// === impl RulesFile ===

impl RulesFile {
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    pub(crate) async fn read(&self) -> Result<String, RulesFileError> {
        let bytes = tokio::fs::read(&self.path).await;
        let bytes = bytes.map_err(|error| self.unusable(format!("can't read the file: {error}")))?;
        String::from_utf8(bytes).map_err(|_| self.unusable("the file is not UTF-8 text".to_owned()))
    }

    pub(crate) fn wrong(&self, report: &RulesFileReport) -> RulesFileError {
        self.unusable(report.to_string())
    }

    /// Replaces the content atomically: concurrent readers see the old or the new text. The mode is kept, and a link
    /// stays a link.
    pub(crate) async fn write(&self, text: &str) -> io::Result<()> {
        let (path, text) = (self.path.clone(), text.to_owned());
        tokio::task::spawn_blocking(move || replace(&path, text.as_bytes())).await.map_err(io::Error::other)?
    }

    fn unusable(&self, problem: String) -> RulesFileError {
        RulesFileError { path: self.name(), problem }
    }
}

fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let target = fs::canonicalize(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(path.to_owned()),
        _ => Err(error),
    })?;
    let mode = fs::metadata(&target).map_or(0o600, |metadata| metadata.permissions().mode() & 0o7777);
    private_file::replace(&target, content, mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_keeps_its_mode_and_its_links() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("real.yaml"), folder.path().join("permissions.yaml"));
        fs::write(&target, "agents: {}\n").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace(&link, b"default: deny\n").unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "default: deny\n");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
