//! A person's machine in miniature: a home folder and the programs that run in it.

use std::{
    ffi::OsStr,
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::{FinishedProcess, SmallDisk, TestHub, TestProcess, until};

/// A temporary home. `$A2A_HOME` is its folder `.a2a`; logs of its processes are in `logs`. Removed at the end of the
/// test.
#[derive(Debug)]
pub struct TestHome {
    folder: TempDir,
    /// `RUST_LOG` of its processes.
    log: Option<&'static str>,
    /// The network namespace of its processes, if not the test's own.
    network: Option<String>,
    /// Additional environment variables of its processes.
    variables: Vec<(String, String)>,
    /// The disk of `$A2A_HOME`, if not the test's disk.
    disk: Option<SmallDisk>,
    /// Its `attache`.
    attache: PathBuf,
}

// === impl TestHome ===

impl TestHome {
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new().prefix("attache-test-").tempdir().unwrap(),
            log: None,
            network: None,
            variables: Vec::new(),
            disk: None,
            attache: env!("CARGO_BIN_EXE_attache").into(),
        }
    }

    /// A home with another build of the program.
    pub fn with_program(program: &Path) -> Self {
        Self { attache: program.to_owned(), ..Self::new() }
    }

    /// A home whose `$A2A_HOME` is a disk of this size (`8m`). None if a test can't mount one.
    pub fn on_small_disk(size: &str) -> Option<Self> {
        let mut home = Self::new();
        home.disk = Some(SmallDisk::at(&home.path().join(".a2a"), size, &home.logs())?);
        Some(home)
    }

    #[track_caller]
    pub fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("the home is on a small disk")
    }

    /// A home in a folder of the caller's choice.
    pub fn within(folder: &Path, name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(folder).unwrap();
        Self { folder, ..Self::new() }
    }

    /// Keeps the folder, to find out why the test failed.
    pub fn keep(&mut self) {
        self.folder.disable_cleanup(true);
    }

    /// A home whose processes log at this `RUST_LOG` level.
    pub fn logging(level: &'static str) -> Self {
        Self { log: Some(level), ..Self::new() }
    }

    /// A home whose processes run in a network namespace.
    pub fn in_network(namespace: String) -> Self {
        Self { network: Some(namespace), ..Self::new() }
    }

    /// Sets an environment variable for its processes.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// What was set, if anything was.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables.iter().rev().find(|(set, _)| set == name).map(|(_, value)| value.clone())
    }

    /// The home folder itself.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The files of the hub's artifacts, each in a folder named by the first two digits of its hash.
    pub fn artifact_files(&self) -> Vec<PathBuf> {
        let entries = |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let folders = entries(&self.a2a().join("hub/blobs")).filter(|path| path.file_name().unwrap().len() == 2);
        folders.flat_map(|folder| entries(&folder).collect::<Vec<_>>()).collect()
    }

    /// `$A2A_HOME`, as the test sees it.
    pub fn a2a(&self) -> PathBuf {
        let path = self.path().join(".a2a");
        self.disk.as_ref().map_or(path.clone(), |disk| disk.seen(&path))
    }

    /// Where the output of every process is kept: `0000-hub.stderr` and so on.
    pub fn logs(&self) -> PathBuf {
        self.path().join("logs")
    }

    pub fn profile_file(&self) -> PathBuf {
        self.a2a().join("runtime.json")
    }

    #[track_caller]
    pub fn profiles(&self) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.profile_file()).unwrap()).unwrap()
    }

    pub fn ledger_file(&self, agent_id: &str) -> PathBuf {
        self.a2a().join("logs").join(agent_id).join("execution-ledger.jsonl")
    }

    /// The lines of an agent's ledger, oldest first.
    #[track_caller]
    pub fn ledger(&self, agent_id: &str) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.ledger_file(agent_id)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}"))).collect()
    }

    /// Writes a secret to a private file and returns its path.
    #[track_caller]
    pub fn keep_secret(&self, name: &str, secret: &str) -> String {
        let file = self.path().join(name);
        fs::write(&file, format!("{secret}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file.to_str().unwrap().to_owned()
    }

    /// The owner key of the hub in this home.
    #[track_caller]
    pub fn owner_key(&self) -> String {
        fs::read_to_string(self.a2a().join("hub/admin.key")).unwrap().trim().to_owned()
    }

    /// A program with this home and nothing else from the test's environment.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = match (&self.network, &self.disk) {
            // Changes only the network; `ip netns exec` would also hide mounts.
            (Some(namespace), _) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/run/netns/{namespace}")).arg(program);
                command
            }
            (None, Some(disk)) => {
                let [enter, namespace] = disk.enter();
                let mut command = Command::new(enter);
                // Entering the namespace starts in the root folder.
                command.arg(namespace).args(["env", "-C"]).arg(self.path()).arg(program);
                command
            }
            (None, None) => Command::new(program),
        };
        command.env_clear().current_dir(self.path());
        command.env("HOME", self.path()).env("A2A_HOME", self.path().join(".a2a")).env("LANG", "C.UTF-8");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        command.env("RUST_BACKTRACE", "1");
        if let Some(level) = self.log {
            command.env("RUST_LOG", level);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `attache …`, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.program(&self.attache);
        command.args(args);
        // A test depends on the free space of a disk of its own only, never on the machine's.
        if matches!(args, ["hub" | "up", ..]) && self.disk.is_none() {
            command.args(["--disk-reserve", "0"]);
        }
        command
    }

    /// Runs `attache …` to completion.
    #[track_caller]
    pub fn attache(&self, args: &[&str]) -> FinishedProcess {
        FinishedProcess::of(&mut self.command(args), &self.logs())
    }

    /// Starts `attache …` and leaves it running.
    #[track_caller]
    pub fn spawn(&self, name: &str, args: &[&str]) -> TestProcess {
        TestProcess::spawn(name, &mut self.command(args), &self.logs())
    }

    /// `attache hub` on a free port, ready. Its data is `.a2a/hub`.
    #[track_caller]
    pub fn hub(&self, args: &[&str]) -> TestHub {
        self.server("hub", args)
    }

    /// `attache hub` with the agent `builder`, and this device paired with it and running.
    #[track_caller]
    pub fn hub_with_builder(&self) -> (TestHub, TestProcess) {
        self.hub_with_builder_on(&[])
    }

    /// The same, with arguments for the hub.
    #[track_caller]
    pub fn hub_with_builder_on(&self, args: &[&str]) -> (TestHub, TestProcess) {
        let hub = self.hub(args);
        hub.add_agent("builder");
        self.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
        (hub, self.runtime(&[]))
    }

    /// `attache up` on a free port, ready.
    #[track_caller]
    pub fn up(&self, args: &[&str]) -> TestHub {
        self.server("up", args)
    }

    /// `attache hub` or `attache up`; an address in `args` (`--listen`) replaces the free port.
    #[track_caller]
    pub fn server(&self, kind: &str, args: &[&str]) -> TestHub {
        let mut all = vec![kind];
        match args.iter().position(|arg| *arg == "--listen") {
            // While the server was down, another process may have been given the port for a while.
            Some(at) => until("the port to be free", || TcpListener::bind(args[at + 1]).ok().map(drop)),
            None => all.extend(["--listen", "127.0.0.1:0"]),
        }
        all.extend(args);
        let (process, ready) = self.ready(kind, &all);
        let url = ready["url"].as_str().unwrap().to_owned();
        TestHub { process, url, key: self.owner_key() }
    }

    /// `attache runtime start`, ready: its adapter answers and its first heartbeat was accepted.
    #[track_caller]
    pub fn runtime(&self, args: &[&str]) -> TestProcess {
        let mut all = vec!["runtime", "start"];
        all.extend(args);
        self.ready("runtime", &all).0
    }

    /// `attache adapter …` (for example `&["shell"]`), ready, with its address.
    #[track_caller]
    pub fn adapter(&self, args: &[&str]) -> (TestProcess, String) {
        let mut all = vec!["adapter", args[0], "--listen", "127.0.0.1:0"];
        // Arguments after `--` belong to the adapter's program, so the ready file goes before it.
        all.extend(&args[1..]);
        let (process, ready) = self.ready("adapter", &all);
        (process, ready["url"].as_str().unwrap().to_owned())
    }

    /// Starts `attache …` with a ready file and waits for it. Returns the process and the file's content.
    #[track_caller]
    pub fn ready(&self, name: &str, args: &[&str]) -> (TestProcess, serde_json::Value) {
        fs::create_dir_all(self.logs()).unwrap();
        let number = fs::read_dir(self.logs()).unwrap().count();
        let file = self.path().join(format!("ready-{number}-{name}"));
        let _ = fs::remove_file(&file);
        let mut all = args.to_vec();
        let end = all.iter().position(|arg| *arg == "--").unwrap_or(all.len());
        let path = file.to_str().unwrap();
        all.splice(end..end, ["--ready-file", path]);
        let process = self.spawn(name, &all);
        let ready = until(&format!("{name} to be ready"), || {
            let text = fs::read(&file).unwrap_or_default();
            let ended = process.try_wait();
            assert!(ended.is_none(), "{name} ended with {ended:?}:\n{}", process.stderr());
            serde_json::from_slice(&text).ok()
        });
        (process, ready)
    }
}

impl Default for TestHome {
    fn default() -> Self {
        Self::new()
    }
}
