//! OpenSSH's own server with a folder to export, and a safe folder for mount points.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, time::Duration};

use attache_bench::lease::openssh;
use attache_protocol::{env::Env, wire::awcp::AccessMode};
use attache_workspace::mount::{MountRequest, MountTransport, missing};
use tempfile::TempDir;

pub(crate) struct SshdWithFolder {
    server: openssh::SshdProcess,
    /// It exports `workspace/`. The rest are its own files.
    folder: TempDir,
}

impl SshdWithFolder {
    /// `None`, with the reason printed, if this machine can't mount.
    pub(crate) fn start() -> Option<Self> {
        if let Some(missing) = missing().first() {
            eprintln!("skipped: {missing}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        match openssh::SshdProcess::start(folder.path(), &Env::system()) {
            Ok(server) => Some(Self { server, folder }),
            Err(error) => {
                eprintln!("skipped: OpenSSH's server (package openssh-server) does not start: {error}");
                None
            }
        }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("workspace").join(name)
    }

    pub(crate) const fn port(&self) -> u16 {
        self.server.login.port
    }

    /// A mount request as from a START.
    pub(crate) fn mounting(&self, access_mode: AccessMode, lasts: Duration) -> MountRequest {
        let openssh::SshLogin { port, user, host_key, private_key } = self.server.login.clone();
        let locator = self.folder.path().join("workspace").to_str().unwrap().to_owned();
        let (host, options) = ("127.0.0.1".to_owned(), Vec::new());
        let transport = MountTransport::Sshfs;
        MountRequest { host, port, user, locator, host_key, private_key, access_mode, lasts, options, transport }
    }

    pub(crate) fn mount_request(&self) -> MountRequest {
        self.mounting(AccessMode::Rw, Duration::from_secs(60))
    }
}

/// A private folder for mount points.
pub(crate) fn root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
    root
}
