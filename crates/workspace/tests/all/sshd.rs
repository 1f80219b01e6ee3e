//! OpenSSH's own server on a free port, with keys of its own, for this user alone.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use attache_protocol::{Secret, Timestamp, env::Env, wire::awcp::AccessMode};
use attache_workspace::mount::{Mounting, missing};
use tempfile::TempDir;

pub(crate) struct Sshd {
    /// `workspace/` is what it exports; the rest are its files.
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
    process: Child,
}

const SSHD: &str = "/usr/sbin/sshd";

impl Sshd {
    /// None, with the reason printed, where this machine cannot mount.
    pub(crate) fn start() -> Option<Self> {
        if let Some(missing) = missing().first() {
            eprintln!("skipped: {missing}");
            return None;
        }
        if !Path::new(SSHD).exists() {
            eprintln!("skipped: {SSHD} is missing (package openssh-server)");
            return None;
        }
        // The folder that it changes to as root.
        let _ = fs::create_dir_all("/run/sshd");
        let folder = tempfile::tempdir().unwrap();
        for name in ["host", "client", "stranger"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.path().join(name));
            assert!(make.status().unwrap().success());
        }
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let path = folder.path().display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {path}/host\nAuthorizedKeysFile {path}/client.pub\n\
             StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nSubsystem sftp internal-sftp\n"
        );
        fs::write(folder.path().join("sshd_config"), config).unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        let mut command = Command::new(SSHD);
        command.arg("-D").arg("-f").arg(folder.path().join("sshd_config")).arg("-E").arg(folder.path().join("log"));
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        let since = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(since.elapsed() < Duration::from_secs(10), "sshd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Self { folder, port, process })
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join("workspace").join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap()
    }

    /// What a START would say.
    pub(crate) fn mounting(&self, access_mode: AccessMode, expires_at: Timestamp) -> Mounting {
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        Mounting {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: String::from_utf8(user).unwrap().trim().to_owned(),
            locator: self.folder.path().join("workspace").to_str().unwrap().to_owned(),
            host_key: self.read("host.pub").trim().to_owned(),
            private_key: Secret::new(self.read("client")),
            access_mode,
            expires_at,
        }
    }

    pub(crate) fn lent(&self) -> Mounting {
        self.mounting(AccessMode::Rw, Env::system().now().plus(Duration::from_secs(60)))
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A folder for mount points, closed as one should be.
pub(crate) fn root() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
    root
}
