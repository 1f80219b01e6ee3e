//! A delegating machine, a working machine and a hub between them: real processes and a real FUSE mount.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::networks::{HUB, NetworkMachine, TestNetworks};
use crate::harness::{FinishedProcess, TestHome, TestProcess, until};

/// How the remote reaches the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FolderRoute {
    /// All on one machine, directly to the daemon's port.
    Direct,
    /// Three machines that can only connect through the hub.
    Tunnel,
    /// On one machine, through a hub with a self-signed certificate.
    Encrypted,
}

#[derive(Debug)]
pub struct DelegationWorld {
    pub route: FolderRoute,
    pub hub: Option<TestProcess>,
    pub url: String,
    pub runtime: Option<TestProcess>,
    pub daemon: Option<TestProcess>,
    pub host: TestHome,
    pub remote: TestHome,
    hub_home: TestHome,
    /// The delegated folder.
    pub folder: PathBuf,
    pub nets: Option<TestNetworks>,
}

/// A running delegation, by its id.
#[derive(Debug)]
pub struct StartedDelegation<'a> {
    world: &'a DelegationWorld,
    pub id: String,
}

/// Whether the programs needed for a mount are installed; prints what is missing.
pub fn can_mount() -> bool {
    if cfg!(attache_portable) {
        eprintln!("skipped: only Linux mounts folders of other machines");
        return false;
    }
    let has = |program: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|folder| folder.join(program).exists())
    };
    let missing: Vec<_> = ["sshfs", "fusermount3", "ssh"].into_iter().filter(|program| !has(program)).collect();
    if !missing.is_empty() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: a mount needs sshfs, fuse3, openssh-client and /dev/fuse; missing: {missing:?}");
        return false;
    }
    true
}

// === impl DelegationWorld ===

impl DelegationWorld {
    /// With these settings in the remote owner's `[collaborator]`, besides `enabled = true`. None if the machine can't
    /// do it.
    pub fn new(way: FolderRoute, collaborator: &str) -> Option<Self> {
        Self::build(way, collaborator, None, &[])
    }

    /// The same with this home for the remote, and another agent than the shell.
    pub fn with_remote(way: FolderRoute, collaborator: &str, remote: TestHome, executor: &[&str]) -> Option<Self> {
        Self::build(way, collaborator, Some(remote), executor)
    }

    fn build(way: FolderRoute, collaborator: &str, remote: Option<TestHome>, executor: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let nets = match way {
            FolderRoute::Direct | FolderRoute::Encrypted => None,
            FolderRoute::Tunnel => Some(TestNetworks::new()?),
        };
        let home = |machine| nets.as_ref().map_or_else(TestHome::new, |nets| TestHome::in_network(nets.of(machine)));
        let (hub_home, host) = (home(NetworkMachine::Hub), home(NetworkMachine::Host));
        let remote = remote.unwrap_or_else(|| home(NetworkMachine::Remote));
        let folder = host.path().join("src/project");
        fs::create_dir_all(&folder).unwrap();
        let mut world = Self {
            route: way,
            hub: None,
            url: String::new(),
            runtime: None,
            daemon: None,
            host,
            remote,
            hub_home,
            folder,
            nets,
        };
        world.start_hub();
        world.pair(executor);
        world.write_policy(&world.remote, &format!("[collaborator]\nenabled = true\n{collaborator}\n"));
        world.start_runtime();
        let url = world.agent_url();
        let key = world.key_file();
        let pin = world.pin();
        let allow = ["allow", "--peer", &url, "--key-file", key.to_str().unwrap()];
        world.delegations(&[&allow[..], &pin.iter().map(String::as_str).collect::<Vec<_>>()].concat()).succeeds();
        if way == FolderRoute::Encrypted {
            let file = world.host.path().join(".AWCP/policy.toml");
            let policy = fs::read_to_string(&file).unwrap().replace("url = ", "reach = \"tunnel\"\nurl = ");
            fs::write(file, policy).unwrap();
        }
        let root = world.host.path().join("src");
        world.delegations(&["allow", "--folder", root.to_str().unwrap()]).succeeds();
        world.start_daemon();
        Some(world)
    }

    /// The agent's A2A URL.
    pub fn agent_url(&self) -> String {
        format!("{}/a2a/builder", self.url)
    }

    pub fn start_hub(&mut self) {
        let listen = match (self.route, self.url.split_once("://")) {
            (_, Some((_, address))) => address.to_owned(),
            (FolderRoute::Direct | FolderRoute::Encrypted, None) => "127.0.0.1:0".to_owned(),
            (FolderRoute::Tunnel, None) => format!("{HUB}:7800"),
        };
        let mut args = vec!["hub", "--listen", &listen];
        match self.route {
            FolderRoute::Direct => {}
            FolderRoute::Tunnel => args.push("--insecure-lan"),
            FolderRoute::Encrypted => args.push("--tls-self-signed"),
        }
        let (process, ready) = self.hub_home.ready("hub", &args);
        self.url = ready["url"].as_str().unwrap().to_owned();
        self.hub = Some(process);
    }

    pub fn start_runtime(&mut self) {
        self.runtime = Some(self.remote.runtime(&[]));
    }

    pub fn start_daemon(&mut self) {
        self.daemon = Some(self.host.ready("daemon", &["daemon"]).0);
    }

    /// `attache …` as the hub's owner.
    #[track_caller]
    pub fn owner(&self, args: &[&str]) -> FinishedProcess {
        let key = self.key_file();
        let pin = self.pin();
        let pin: Vec<_> = pin.iter().map(String::as_str).collect();
        let all = [args, &["--hub", &self.url, "--key-file", key.to_str().unwrap()], &pin].concat();
        self.hub_home.attache(&all)
    }

    /// `attache delegations …` on the delegating machine.
    #[track_caller]
    pub fn delegations(&self, args: &[&str]) -> FinishedProcess {
        self.host.attache(&[&["delegations"], args].concat())
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(name)).unwrap_or_else(|error| format!("({error})"))
    }

    /// `attache delegate` to completion: the delegation as JSON, whatever its result.
    #[track_caller]
    pub fn delegate(&self, more: &[&str], script: &str) -> Value {
        let delegation = self.delegate_in_background(more, script);
        delegation.ended()
    }

    #[track_caller]
    pub fn delegate_in_background(&self, more: &[&str], script: &str) -> StartedDelegation<'_> {
        let ran = self.try_delegate(&[more, &["--background"]].concat(), script).succeeds();
        let id = ran.json()["delegation_id"].as_str().unwrap().to_owned();
        StartedDelegation::of(self, id)
    }

    #[track_caller]
    pub fn try_delegate(&self, more: &[&str], script: &str) -> FinishedProcess {
        let folder = self.folder.to_str().unwrap();
        let url = self.agent_url();
        let all = [&["delegate", folder, "--to", &url, "--json"], more, &[script]].concat();
        self.host.attache(&all)
    }

    /// The current mounts on the remote.
    pub fn mounts(&self) -> Vec<String> {
        let below = self.remote.path().to_str().unwrap().to_owned();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4));
        points.filter(|point| point.starts_with(&below)).map(str::to_owned).collect()
    }

    /// Checks that the remote has cleaned up: no mount and no leftover mount points.
    #[track_caller]
    pub fn is_clean(&self, within: Duration) {
        let begun = Instant::now();
        until("the remote to be clean", || self.mounts().is_empty().then_some(()));
        assert!(begun.elapsed() < within, "it took {:?}", begun.elapsed());
        until("the mount point and its keys to be gone", || {
            let all = fs::read_dir(self.remote.path().join(".AWCP/mounts")).into_iter().flatten().flatten();
            // Keys are next to the mount points, one folder per lease.
            let keys = fs::read_dir(self.remote.path().join(".AWCP/mounts/.leases")).into_iter().flatten().flatten();
            let keys = keys.filter(|entry| entry.path().is_dir());
            let points = all.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
            (points.count() + keys.count() == 0).then_some(())
        });
    }

    fn pair(&self, executor: &[&str]) {
        self.owner(&["agents", "add", "builder"]).succeeds();
        let code = self.owner(&["agents", "code", "builder", "--json"]).succeeds().json();
        let code = code["pairing_code"].as_str().unwrap().to_owned();
        let pin = self.pin();
        let pair = ["runtime", "pair", &code, "--api-base", &self.url];
        self.remote
            .attache(&[&pair[..], executor, &pin.iter().map(String::as_str).collect::<Vec<_>>()].concat())
            .succeeds();
    }

    /// The options with the hub's pin, if it has one.
    fn pin(&self) -> Vec<String> {
        let pin = fs::read_to_string(self.hub_home.a2a().join("hub/tls.pin")).ok();
        pin.map(|pin| vec!["--pin".to_owned(), pin.trim().to_owned()]).unwrap_or_default()
    }

    pub fn key_file(&self) -> PathBuf {
        self.hub_home.a2a().join("hub/admin.key")
    }

    pub fn write_policy(&self, home: &TestHome, text: &str) {
        let folder = home.path().join(".AWCP");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("policy.toml"), text).unwrap();
    }
}

impl Drop for DelegationWorld {
    fn drop(&mut self) {
        // Stop the processes that hold mounts first, so that the homes can be removed.
        for process in [&self.runtime, &self.daemon, &self.hub].into_iter().flatten() {
            process.kill();
        }
        let begun = Instant::now();
        while !self.mounts().is_empty() && begun.elapsed() < Duration::from_secs(6) {
            std::thread::sleep(Duration::from_millis(50));
        }
        for left in self.mounts() {
            let _ = Command::new("fusermount3").args(["-uz", &left]).status();
        }
    }
}

// === impl StartedDelegation ===

impl<'a> StartedDelegation<'a> {
    /// Looks it up again by its id.
    pub const fn of(world: &'a DelegationWorld, id: String) -> Self {
        Self { world, id }
    }

    #[track_caller]
    pub fn show(&self) -> Value {
        self.world.delegations(&["show", &self.id, "--json"]).succeeds().json()
    }

    #[track_caller]
    pub fn ended(&self) -> Value {
        until(&format!("{} to end", self.id), || {
            let shown = self.show();
            let over = ["completed", "error", "cancelled", "expired"];
            over.contains(&shown["status"].as_str().unwrap()).then_some(shown)
        })
    }
}
