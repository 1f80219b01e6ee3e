//! A PostgreSQL server of a test's own: in a temporary folder, on a free port, gone with the test.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How long a start may take on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Where Debian keeps the programs of each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct TestPostgresServer {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    process: Child,
}

// === impl TestPostgresServer ===

impl TestPostgresServer {
    /// Starts a server. `None`, with a line that says so, where PostgreSQL isn't installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!("skipped: PostgreSQL 15 or newer isn't installed (postgresql)");
            return None;
        };
        let port = free_port();
        let folder = folder(port);
        let data = folder.join("data");
        run(as_somebody(&programs.join("initdb"), &folder)
            .args(["--auth=trust", "--username=attache", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data));
        let mut server = Self { process: spawn(&programs, &folder, port), folder, programs, port };
        server.wait_until_ready();
        Some(server)
    }

    /// The URL of a database.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://attache@127.0.0.1:{}/{database}", self.port)
    }

    /// Makes an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        self.psql("postgres", &format!("create database {name}"));
        self.url(name)
    }

    /// Runs statements, and returns what they print without headings.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.programs.join("psql"))
            .args(["--no-psqlrc", "-qAt", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url(database)])
            .output()
            .expect("psql is beside the server");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Kills the server without warning, as a power cut would.
    pub fn crash(&mut self) {
        let _ = run_quietly(
            as_somebody(&self.programs.join("pg_ctl"), &self.folder)
                .args(["stop", "-m", "immediate", "-D"])
                .arg(self.folder.join("data")),
        );
        let _ = self.process.wait();
    }

    /// Starts the server again.
    pub fn restart(&mut self) {
        self.process = spawn(&self.programs, &self.folder, self.port);
        self.wait_until_ready();
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while !answers(self.port) {
            assert!(Instant::now() < deadline, "PostgreSQL does not start in {}", self.folder.display());
            if let Ok(Some(status)) = self.process.try_wait() {
                panic!(
                    "PostgreSQL ended: {status}\n{}",
                    fs::read_to_string(self.folder.join("log")).unwrap_or_default()
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for TestPostgresServer {
    fn drop(&mut self) {
        self.crash();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The folder of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(DEBIAN).ok()?.flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max()?;
    let programs = Path::new(DEBIAN).join(newest.to_string()).join("bin");
    (newest >= 15 && programs.join("initdb").exists()).then_some(programs)
}

/// In memory where the machine has it: what a disk does to a database is PostgreSQL's own concern.
fn folder(port: u16) -> PathBuf {
    let parent = Path::new("/dev/shm");
    let parent = if parent.is_dir() { parent.to_owned() } else { std::env::temp_dir() };
    let folder = parent.join(format!("attache-postgres-{}-{port}", std::process::id()));
    fs::create_dir(&folder).expect("a new folder can be made");
    if let Some(user) = somebody() {
        std::os::unix::fs::chown(&folder, Some(user), None).expect("root may give a folder away");
    }
    folder
}

/// PostgreSQL refuses to work for root. Debian's package brings a user for it.
fn somebody() -> Option<u32> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let own = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().nth(1)?;
    if own != "0" {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let user = users
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .or_else(|| users.lines().find(|line| line.starts_with("nobody:")))?;
    user.split(':').nth(2)?.parse().ok()
}

fn as_somebody(program: &Path, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder).env("HOME", folder).env("LC_ALL", "C").stdin(Stdio::null());
    if let Some(user) = somebody() {
        command.uid(user).gid(user);
    }
    command
}

fn spawn(programs: &Path, folder: &Path, port: u16) -> Child {
    let log = fs::OpenOptions::new().append(true).create(true).open(folder.join("log")).expect("the folder is ours");
    let errors = log.try_clone().expect("a descriptor can be copied");
    as_somebody(&programs.join("postgres"), folder)
        .arg("-D")
        .arg(folder.join("data"))
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"])
        .args(["-c", "unix_socket_directories=", "-c", "shared_buffers=64MB", "-c", "fsync=off"])
        .stdout(log)
        .stderr(errors)
        .spawn()
        .expect("PostgreSQL can be started")
}

fn run(command: &mut Command) {
    let output = command.output().expect("PostgreSQL's programs can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn run_quietly(command: &mut Command) -> std::io::Result<()> {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().map(drop)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Whether the server takes connections: it answers a request for TLS with one byte, also while it starts up, and then
/// one without.
fn answers(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let _ = socket.set_read_timeout(Some(Duration::from_secs(5)));
    // Protocol 3.0, user and database.
    let mut hello = vec![0, 0, 0, 0, 0, 3, 0, 0];
    hello.extend_from_slice(b"user\0attache\0database\0postgres\0\0");
    let length = u32::try_from(hello.len()).expect("it is short");
    hello[..4].copy_from_slice(&length.to_be_bytes());
    let mut answer = [0];
    // `R`: authentication is fine. `E`: it is starting up.
    socket.write_all(&hello).is_ok() && socket.read_exact(&mut answer).is_ok() && answer[0] == b'R'
}
