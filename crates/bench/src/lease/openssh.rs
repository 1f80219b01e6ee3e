//! Stock programs that leases are used with and compared with: ssh, sftp, sshfs and OpenSSH's own server, each with its
//! own files and without the user's configuration.

use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use attache_os::program;
use attache_protocol::{Secret, env::Env};

use attache_workspace::ssh::{HostKey, make_key};

/// How long a program can take to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// How to log in to a server on this machine.
#[derive(Debug, Clone)]
pub struct SshLogin {
    pub port: u16,
    pub user: String,
    /// The server's expected public key.
    pub host_key: String,
    pub private_key: Secret<String>,
}

/// An SSH login for programs, with its files written.
#[derive(Debug, Clone)]
pub struct SshLoginFiles {
    user: String,
    options: Vec<String>,
}

/// A mounted folder, unmounted when dropped.
#[derive(Debug)]
pub struct SshfsMount {
    child: Child,
    pub mount_point: PathBuf,
}

/// OpenSSH's server with its own `sftp-server`, stopped when dropped.
#[derive(Debug)]
pub struct SshdProcess {
    child: Child,
    pub login: SshLogin,
}

/// The programs that are missing here, with their packages.
pub fn missing() -> Vec<&'static str> {
    let programs = [
        ("/usr/bin/ssh", "ssh (package openssh-client)"),
        ("/usr/bin/sftp", "sftp (package openssh-client)"),
        ("/usr/bin/sshfs", "sshfs (package sshfs)"),
        ("/usr/bin/fusermount3", "fusermount3 (package fuse3)"),
        ("/dev/fuse", "/dev/fuse (kernel module fuse)"),
    ];
    programs.into_iter().filter(|(path, _)| !Path::new(path).exists()).map(|(_, what)| what).collect()
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// Calls `is_ready` until it returns true. Fails with the program's output if it exits first.
fn wait_for(child: &mut Child, log: &Path, is_ready: impl Fn() -> bool) -> io::Result<()> {
    let begin = Instant::now();
    while !is_ready() {
        let output = || fs::read_to_string(log).unwrap_or_default();
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("exited with {status}: {}", output().trim())));
        }
        if begin.elapsed() > START_TIMEOUT {
            stop(child);
            return Err(io::Error::other(format!("not ready after {START_TIMEOUT:?}: {}", output().trim())));
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

// === impl SshLogin ===

impl SshLogin {
    /// Writes the key and the host key into `dir`.
    pub fn write(&self, dir: &Path) -> io::Result<SshLoginFiles> {
        let (key, hosts) = (dir.join("key"), dir.join("known_hosts"));
        write_private(&key, self.private_key.expose())?;
        fs::write(&hosts, format!("[127.0.0.1]:{} {}\n", self.port, self.host_key))?;
        let options = [
            format!("Port={}", self.port),
            format!("IdentityFile={}", key.display()),
            format!("UserKnownHostsFile={}", hosts.display()),
            "IdentitiesOnly=yes".to_owned(),
            "IdentityAgent=none".to_owned(),
            "GlobalKnownHostsFile=/dev/null".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            "BatchMode=yes".to_owned(),
        ];
        Ok(SshLoginFiles { user: self.user.clone(), options: options.into() })
    }
}

// === impl SshLoginFiles ===

impl SshLoginFiles {
    /// `ssh`, `sftp` or `sshfs` with these options and without the user's configuration.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-F", "/dev/null"]);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// `user@host` for the end of a command line.
    pub fn host(&self) -> String {
        format!("{}@127.0.0.1", self.user)
    }

    /// Mounts `path` of the host, with additional sshfs options.
    pub fn mount(&self, path: &str, mount_point: &Path, more: &[&str]) -> io::Result<SshfsMount> {
        fs::create_dir_all(mount_point)?;
        let log = mount_point.with_extension("log");
        let mut command = self.command("sshfs");
        for option in more {
            command.args(["-o", option]);
        }
        let outside = fs::metadata(mount_point)?.dev();
        let mut child = command
            .args(["-f", "-o", "idmap=user"])
            .arg(format!("{}:{path}", self.host()))
            .arg(mount_point)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        let is_mounted = || fs::metadata(mount_point).is_ok_and(|mounted| mounted.dev() != outside);
        wait_for(&mut child, &log, is_mounted)?;
        Ok(SshfsMount { child, mount_point: mount_point.to_owned() })
    }
}

// === impl SshfsMount ===

impl Drop for SshfsMount {
    fn drop(&mut self) {
        // Lazily, so that a file still open in a failing test blocks nothing. sshfs exits once it is unmounted.
        let unmount =
            Command::new(program::path("fusermount3")).arg("-uz").arg(&self.mount_point).stderr(Stdio::null()).status();
        if unmount.is_ok_and(|status| status.success()) {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_secs(2) {
                if matches!(self.child.try_wait(), Ok(Some(_))) {
                    return;
                }
                sleep(Duration::from_millis(5));
            }
        }
        stop(&mut self.child);
    }
}

// === impl SshdProcess ===

impl SshdProcess {
    /// Starts one on a free loopback port that admits the user of this process.
    pub fn start(dir: &Path, env: &Env) -> io::Result<Self> {
        let server = ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];
        let server = server.into_iter().find(|path| Path::new(path).exists());
        let server = server.ok_or_else(|| io::Error::other("sftp-server not found; install openssh-sftp-server"))?;
        let (host_key, key) = (HostKey::generate(env), make_key(env));
        write_private(&dir.join("host_key"), host_key.to_openssh().expose())?;
        fs::write(dir.join("authorized_keys"), format!("{}\n", key.public))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let shown = dir.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/host_key\nAuthorizedKeysFile {shown}/authorized_keys\n\
             PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n\
             Subsystem sftp {server}\n"
        );
        fs::write(dir.join("sshd_config"), config)?;
        let user = Command::new(program::path("id")).arg("-un").output()?;
        // Debian's server needs this folder when root starts it. Elsewhere it isn't needed.
        let _ = fs::create_dir("/run/sshd");
        let log = dir.join("sshd.log");
        let mut child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(dir.join("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        wait_for(&mut child, &log, || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
        let login = SshLogin { port, user, host_key: host_key.public_openssh(), private_key: key.private };
        Ok(Self { child, login })
    }
}

impl Drop for SshdProcess {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}
