//! Leases over SSH, used with common programs: ssh, sftp, sshfs.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use attache_bench::lease::openssh::{self, SshLogin, SshfsMount};
use attache_protocol::{Secret, env::Env, wire::awcp::AccessMode};
use attache_workspace::{
    export::{Export, ExportTerms, NoExportAudit, OriginalsFolder},
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer, SshServerOptions, make_key},
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

mod mounted;
mod objects;
mod outage;
mod pressure;
mod programs;
mod raw;
mod revocation;
mod throughput;
mod unauthenticated;

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
    dir: TempDir,
}

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
        LeaseFixture { admission, export, locator: locator.to_owned(), private_key: key.private, folder, options, dir }
    }

    pub(crate) fn login(&self, private_key: Secret<String>) -> SshLogin {
        let host_key = self.host_key.public_openssh();
        SshLogin { port: self.port, user: "lease".to_owned(), host_key, private_key }
    }
}

// === impl LeaseFixture ===

impl LeaseFixture {
    pub(crate) fn mount(&self) -> SshfsMount {
        let path = format!("/{}", self.locator);
        self.options.mount(&path, &self.dir.path().join("mounted"), &["reconnect"]).unwrap()
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
