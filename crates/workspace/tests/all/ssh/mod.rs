//! Leases over SSH, used with common programs: ssh, sftp, sshfs.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use attache_bench::lease::openssh::{self, SshLogin};
use attache_protocol::{Secret, env::Env, wire::awcp::AccessMode};
use attache_workspace::{
    export::{Export, ExportTerms, NoExportAudit, OriginalsFolder},
    mount::{MountHandle, MountPoint, MountRequest, MountSummary, MountTransport, SYNC_OPTION, mount},
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer, SshServerOptions, make_key},
};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The same promises, whatever carries the folder.
macro_rules! over_every_transport {
    ($($name:ident),* $(,)?) => {
        mod sshfs {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(attache_workspace::mount::MountTransport::Sshfs).await;
            })*
        }
        mod attache_fs {
            $(#[tokio::test(flavor = "multi_thread")]
            #[cfg_attr(attache_portable, ignore = "only Linux has a client of attache-fs")]
            async fn $name() {
                super::$name(attache_workspace::mount::MountTransport::AttacheFs).await;
            })*
        }
    };
}

mod mounted;
mod objects;
mod outage;
mod pressure;
mod programs;
mod raw;
mod revocation;
mod throughput;
pub(crate) mod unauthenticated;

/// A host with a server on its own port.
pub(crate) struct SshTestHost {
    pub(crate) server: SshServer,
    pub(crate) host_key: HostKey,
    pub(crate) port: u16,
    _stop: tokio_util::sync::DropGuard,
}

/// One lease on a new folder, and the files of its key holder.
pub(crate) struct LeaseFixture {
    pub(crate) admission: LeaseAdmission,
    pub(crate) export: Arc<Export>,
    pub(crate) locator: String,
    pub(crate) private_key: Secret<String>,
    /// The exported folder.
    pub(crate) folder: PathBuf,
    pub(crate) options: openssh::SshLoginFiles,
    pub(crate) port: u16,
    pub(crate) host_key: String,
    dir: TempDir,
}

/// A mounted lease, unmounted when dropped.
pub(crate) struct TestMount {
    pub(crate) mount_point: PathBuf,
    is_copy: bool,
    handle: Option<MountHandle>,
    _sshfs: Option<openssh::SshfsMount>,
    _root: TempDir,
}

/// A mount whose process is stopped. Dropping it lets it continue.
pub(crate) struct PausedMount(Pid);

/// Prints why a test is skipped here.
#[allow(clippy::print_stdout, reason = "a skip says why")]
pub(crate) fn cannot_run() -> bool {
    let missing = openssh::missing();
    if !missing.is_empty() {
        println!("skipped: this machine has no {}", missing.join(", no "));
    }
    !missing.is_empty()
}

/// The promise is one second. This leaves room for a busy machine, but is less than ssh's own timeouts.
pub(crate) const SOON: Duration = Duration::from_secs(15);

// === impl SshTestHost ===

impl SshTestHost {
    pub(crate) async fn start() -> Self {
        Self::with(SshServerOptions::default()).await
    }

    pub(crate) async fn with(options: SshServerOptions) -> Self {
        let host_key = HostKey::generate(&Env::system());
        let server = SshServer::with(&host_key, options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let (listening, stopped) = (server.clone(), stop.clone());
        tokio::spawn(async move { listening.listen(listener, stopped).await });
        Self { server, host_key, port, _stop: stop.drop_guard() }
    }

    pub(crate) fn lend(&self, locator: &str) -> LeaseFixture {
        self.lend_on(locator, ExportTerms::new(AccessMode::Rw))
    }

    pub(crate) fn lend_on(&self, locator: &str, terms: ExportTerms) -> LeaseFixture {
        let dir = TempDir::new().unwrap();
        let (folder, before) = (dir.path().join("workspace"), dir.path().join("before"));
        fs::create_dir(&folder).unwrap();
        let export = Export::open(&folder, terms, OriginalsFolder::in_folder(before), Arc::new(NoExportAudit)).unwrap();
        let export = Arc::new(export);
        let key = make_key(&Env::system());
        let pass = LeaseAccess { key: key.public, locator: locator.to_owned(), export: Arc::clone(&export) };
        let admission = self.server.admit(pass).unwrap();
        let options = self.login(key.private.clone()).write(dir.path()).unwrap();
        let (port, host_key) = (self.port, self.host_key.public_openssh());
        let (locator, private_key) = (locator.to_owned(), key.private);
        LeaseFixture { admission, export, locator, private_key, folder, options, port, host_key, dir }
    }

    pub(crate) fn login(&self, private_key: Secret<String>) -> SshLogin {
        let host_key = self.host_key.public_openssh();
        SshLogin { port: self.port, user: "lease".to_owned(), host_key, private_key }
    }
}

// === impl LeaseFixture ===

impl LeaseFixture {
    pub(crate) fn mount(&self) -> openssh::SshfsMount {
        let path = format!("/{}", self.locator);
        self.options.mount(&path, &self.dir.path().join("mounted"), &["reconnect"]).unwrap()
    }

    pub(crate) async fn mount_as(&self, transport: MountTransport) -> TestMount {
        self.mount_at(self.port, transport).await
    }

    /// With changes that are acknowledged before the host has them.
    pub(crate) async fn mount_write_back(&self, port: u16) -> TestMount {
        let options = Vec::new();
        self.mount_with(MountRequest { port, options, ..self.mount_request(MountTransport::AttacheFs) }).await
    }

    /// Through another port, which leads to the host.
    pub(crate) async fn mount_at(&self, port: u16, transport: MountTransport) -> TestMount {
        if transport == MountTransport::Sshfs && port == self.port {
            let (sshfs, root) = (self.mount(), crate::sshd::root());
            let mount_point = sshfs.mount_point.clone();
            return TestMount { mount_point, is_copy: false, handle: None, _sshfs: Some(sshfs), _root: root };
        }
        self.mount_with(MountRequest { port, ..self.mount_request(transport) }).await
    }

    pub(crate) async fn mount_with(&self, request: MountRequest) -> TestMount {
        let root = crate::sshd::root();
        let is_copy = request.transport == MountTransport::Sync;
        let place = MountPoint::reserve(&[root.path().to_owned()], "dlg_test", &Env::system()).unwrap();
        let handle = mount(&crate::mount::guard(), place, request).await.unwrap();
        let mount_point = handle.mount_point().to_owned();
        TestMount { mount_point, is_copy, handle: Some(handle), _sshfs: None, _root: root }
    }

    /// Writable, whatever the terms: the host has to refuse. Nothing is acknowledged that the host doesn't have.
    pub(crate) fn mount_request(&self, transport: MountTransport) -> MountRequest {
        let options = match transport {
            MountTransport::Sshfs | MountTransport::Sync => Vec::new(),
            MountTransport::AttacheFs => vec![SYNC_OPTION.to_owned()],
        };
        MountRequest {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            user: "lease".to_owned(),
            locator: self.locator.clone(),
            host_key: self.host_key.clone(),
            private_key: self.private_key.clone(),
            access_mode: AccessMode::Rw,
            lasts: Duration::from_secs(600),
            options,
            transport,
        }
    }

    /// The output of sftp for a list of commands.
    pub(crate) fn sftp(&self, commands: &str) -> Output {
        let mut sftp = self.options.command("sftp");
        sftp.args(["-b", "-"]).arg(self.options.host()).current_dir(self.dir.path());
        run(&mut sftp, commands.as_bytes())
    }

    /// The output of ssh. `before` are options, and `after` is the remote command.
    pub(crate) fn ssh(&self, before: &[&str], after: &[&str]) -> Output {
        let mut ssh = self.options.command("ssh");
        ssh.args(before).arg(self.options.host()).args(after);
        run(&mut ssh, b"")
    }
}

// === impl TestMount ===

impl TestMount {
    /// Waits until the host has everything.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        fs::File::open(&self.mount_point)?.sync_all()
    }

    /// Unmounts, and returns how it ended.
    pub(crate) async fn unmount(mut self) -> MountSummary {
        self.handle.take().expect("it is not stock sshfs").unmount().await
    }

    /// Waits until it ended by itself, and returns how.
    pub(crate) async fn gone(mut self) -> MountSummary {
        let handle = self.handle.take().expect("it is not stock sshfs");
        handle.gone().await;
        handle.unmount().await
    }

    /// Nothing is sent or received while this is held: its process is stopped.
    pub(crate) fn pause(&self) -> PausedMount {
        let server = crate::attache_fs::server_of(self.guard_pid());
        kill_process(server, Signal::STOP).unwrap();
        PausedMount(server)
    }

    pub(crate) fn guard_pid(&self) -> u32 {
        self.handle.as_ref().and_then(MountHandle::guard_pid).expect("it has a guard")
    }
}

impl Drop for PausedMount {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        if self.handle.take().is_none() {
            return;
        }
        // The guard unmounts when its pipe is closed.
        let mount_point = format!(" {} ", self.mount_point.display());
        for _ in 0..1500 {
            let is_mounted = fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&mount_point);
            let is_there = is_mounted || (self.is_copy && self.mount_point.exists());
            if !is_there {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("still mounted at{mount_point}");
    }
}

/// Runs a program with this input and a timeout, because it would wait forever for a request without an answer.
pub(crate) fn run(command: &mut Command, input: &[u8]) -> Output {
    let mut timed = Command::new("timeout");
    timed.arg("20").arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        timed.current_dir(dir);
    }
    timed.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut child = timed.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that exits early doesn't read all of it.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{command:?} waits forever: {}", text_of(&output));
    output
}

pub(crate) fn text_of(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// Waits for an effect of other threads.
pub(crate) async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within 10 seconds");
}
