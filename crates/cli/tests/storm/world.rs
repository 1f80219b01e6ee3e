//! The processes under test: one hub and several devices, each of which can be killed and restarted.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use attache_protocol::env::Env;

use super::{caller::StormCaller, dice::SeededDice};
use crate::harness::{TestHome, TestHub, TestProcess, process, until};

/// The lease duration and the sweep interval.
pub const LEASE: Duration = Duration::from_millis(3000);
pub const GRACE: Duration = Duration::from_millis(1000);
pub const SWEEP: Duration = Duration::from_millis(200);

/// What can be killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KillTarget {
    Hub,
    Runtime(usize),
    Adapter(usize),
}

/// Which process is killed next, the delay before it, and how long it stays down.
#[derive(Debug, Clone, Copy)]
struct PlannedKill {
    target: KillTarget,
    gap: Duration,
    pause: Duration,
}

/// The number of kills.
#[derive(Debug, Default, Clone, Copy)]
pub struct KillTally {
    pub hubs: usize,
    pub runtimes: usize,
    pub adapters: usize,
}

/// Even while the hub is up, odd while it is down.
#[derive(Debug, Default, Clone)]
pub struct HubGeneration(Arc<AtomicU64>);

// Processes before homes, so that they are stopped before their folders are removed.
#[derive(Debug)]
pub struct StormWorld {
    hub: Option<TestHub>,
    pub devices: Vec<StormDevice>,
    /// What is down, and when it restarts.
    down: Vec<(KillTarget, Instant)>,
    pub generation: HubGeneration,
    pub address: String,
    pub owner: StormCaller,
    pub home: TestHome,
    strikes: fs::File,
    begun: Instant,
    /// Processes that exited without being killed.
    pub deserters: Vec<String>,
}

#[derive(Debug)]
pub struct StormDevice {
    runtime: Option<TestProcess>,
    adapter: StormAdapter,
    pub agent: String,
    pub home: TestHome,
}

#[derive(Debug)]
enum StormAdapter {
    /// A separate process, always at the same address.
    Apart { process: Option<TestProcess>, address: String },
    /// A child of the runtime, which restarts it.
    Supervised,
}

/// A folder in memory, if there is one with enough space: thousands of fsyncs on a slow disk say nothing about the
/// program.
pub fn folder() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let free = Command::new("df").args(["-Pk", "/dev/shm"]).output().ok().and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().nth(1)?.split_whitespace().nth(3)?.parse::<u64>().ok()
    });
    if memory.is_dir() && free.is_some_and(|kib| kib > 512 * 1024) { memory.to_owned() } else { std::env::temp_dir() }
}

/// An address that stays free while its process is down: outside the range of ephemeral ports, where a client's retry
/// could occupy it.
pub fn quiet_address() -> String {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_usize);
    until("a free port", || {
        let mut bytes = [0; 2];
        Env::system().fill(&mut bytes);
        let port = 10_000 + usize::from(u16::from_le_bytes(bytes)) % (first.max(12_000) - 10_000);
        let address = format!("127.0.0.1:{port}");
        TcpListener::bind(&address).ok().map(|_| address)
    })
}

/// `attache hub` with short timeouts.
pub fn start_hub(home: &TestHome, address: &str, lease: Duration) -> TestHub {
    let millis = |duration: Duration| duration.as_millis().to_string();
    home.hub(&[
        "--listen",
        address,
        "--heartbeat-timeout-ms",
        &millis(lease),
        "--claim-grace-ms",
        &millis(GRACE),
        "--sweep-ms",
        &millis(SWEEP),
    ])
}

// === impl StormWorld ===

impl StormWorld {
    /// A hub and devices, all running. Even-numbered devices have a separate adapter.
    pub fn start(devices: usize) -> Self {
        let home = TestHome::within(&folder(), "attache-storm-hub");
        let address = quiet_address();
        let hub = start_hub(&home, &address, LEASE);
        let devices = (0..devices).map(|number| StormDevice::start(&hub, number)).collect();
        Self {
            owner: StormCaller::owner(&hub.url, &hub.key),
            devices,
            down: Vec::new(),
            generation: HubGeneration::default(),
            address,
            strikes: fs::File::create(home.path().join("strikes")).unwrap(),
            begun: Instant::now(),
            deserters: Vec::new(),
            hub: Some(hub),
            home,
        }
    }

    /// Pairs an agent with a device simulated by the test. Returns the agent's id and a caller for its runtime.
    pub fn player(&self, name: &str) -> (String, StormCaller) {
        let hub = self.hub.as_ref().expect("nothing was killed yet");
        let agent = hub.add_agent(name);
        let attached = hub.attach(&hub.pairing_code(name));
        (agent, StormCaller::runtime(&hub.url, attached["runtime_token"].as_str().unwrap()))
    }

    /// Kills this many processes, in an order determined by the seed, and restarts each after a while.
    pub fn storm(&mut self, seed: u64, kills: usize, mut calm: impl FnMut() -> bool) -> KillTally {
        let mut dice = SeededDice::new(seed, 0);
        let mut tally = KillTally::default();
        for _ in 0..kills {
            let strike = PlannedKill::draw(&mut dice, self.devices.len());
            self.pass(strike.gap);
            self.await_up(strike.target);
            let died = self.kill(strike.target);
            tally.count(died);
            self.down.push((died, Instant::now() + strike.pause));
            let _ = writeln!(self.strikes, "{:?} {strike:?} died: {died:?}", self.begun.elapsed());
            if calm() {
                break;
            }
        }
        tally
    }

    /// Starts everything that is down.
    pub fn mend(&mut self) {
        while let Some((target, _)) = self.down.pop() {
            self.start_again(target);
        }
        for number in 0..self.devices.len() {
            if self.devices[number].runtime.as_ref().is_none_or(|runtime| !runtime.is_running()) {
                self.kill(KillTarget::Runtime(number));
                self.start_again(KillTarget::Runtime(number));
            }
        }
    }

    pub fn kill_hub(&mut self) {
        self.kill(KillTarget::Hub);
        self.start_again(KillTarget::Hub);
    }

    /// Stops the hub cleanly and returns the path of its database.
    pub fn stop_hub(&mut self) -> PathBuf {
        let hub = self.hub.take().expect("the hub runs");
        self.generation.down();
        let status = hub.process.terminate();
        assert!(status.success(), "the hub ended with {status}:\n{}", hub.process.stderr());
        self.home.a2a().join("hub/hub.db")
    }

    /// Starts the stopped hub.
    pub fn resume_hub(&mut self) {
        self.start_again(KillTarget::Hub);
    }

    /// Keeps every home.
    pub fn keep(&mut self) -> Vec<PathBuf> {
        self.home.keep();
        let mut kept = vec![self.home.path().to_owned()];
        for device in &mut self.devices {
            device.home.keep();
            kept.push(device.home.path().to_owned());
        }
        kept
    }

    /// Lets time pass and starts what is due.
    fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let now = Instant::now();
            while let Some(due) = self.down.iter().position(|(_, at)| *at <= now) {
                let (target, _) = self.down.remove(due);
                self.start_again(target);
            }
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn await_up(&mut self, target: KillTarget) {
        let is_down = |world: &Self, target| world.down.iter().any(|(down, _)| *down == target);
        loop {
            let supervised = matches!(target, KillTarget::Adapter(number) if self.devices[number].supervises());
            let above = match target {
                KillTarget::Adapter(number) if supervised => KillTarget::Runtime(number),
                other => other,
            };
            if !is_down(self, target) && !is_down(self, above) {
                return;
            }
            self.pass(Duration::from_millis(10));
        }
    }

    /// Kills a process and returns what was killed: the runtime, if its adapter isn't running.
    fn kill(&mut self, target: KillTarget) -> KillTarget {
        match target {
            KillTarget::Hub => {
                self.generation.down();
                let hub = self.hub.take().expect("the hub is up when it is killed");
                self.deserters.extend(deserted(&hub.process));
                hub.process.kill();
                KillTarget::Hub
            }
            KillTarget::Runtime(number) => {
                if let Some(runtime) = self.devices[number].runtime.take() {
                    self.deserters.extend(deserted(&runtime));
                    runtime.kill();
                }
                KillTarget::Runtime(number)
            }
            KillTarget::Adapter(number) => match &mut self.devices[number].adapter {
                StormAdapter::Apart { process, .. } => {
                    if let Some(adapter) = process.take() {
                        self.deserters.extend(deserted(&adapter));
                        adapter.kill();
                    }
                    target
                }
                StormAdapter::Supervised => match self.devices[number].supervised() {
                    Some(id) => {
                        process::signal(id, "KILL");
                        until("the adapter to be gone", || (!process::exists(id)).then_some(()));
                        target
                    }
                    None => self.kill(KillTarget::Runtime(number)),
                },
            },
        }
    }

    fn start_again(&mut self, target: KillTarget) {
        match target {
            KillTarget::Hub => {
                self.hub = Some(start_hub(&self.home, &self.address, LEASE));
                self.generation.up();
            }
            KillTarget::Runtime(number) => {
                let device = &mut self.devices[number];
                device.runtime = Some(device.home.spawn("runtime", &["runtime", "start"]));
            }
            KillTarget::Adapter(number) => {
                let device = &mut self.devices[number];
                if let StormAdapter::Apart { process, address } = &mut device.adapter {
                    *process = Some(device.home.spawn("adapter", &["adapter", "shell", "--listen", address]));
                }
            }
        }
    }
}

/// The output of a process that exited without being killed.
fn deserted(process: &TestProcess) -> Option<String> {
    let status = process.try_wait()?;
    Some(format!("{} ended by itself ({status}):\n{}", process.name, process.stderr()))
}

// === impl StormDevice ===

impl StormDevice {
    fn start(hub: &TestHub, number: usize) -> Self {
        let name = format!("device-{number}");
        let agent = hub.add_agent(&name);
        let home = TestHome::within(&folder(), &format!("attache-storm-{name}"));
        let code = hub.pairing_code(&name);
        let mut pair = vec!["runtime", "pair", &code, "--api-base", &hub.url, "--device-name", &name];
        let (adapter, endpoint) = if number.is_multiple_of(2) {
            let address = quiet_address();
            let (process, _) = home.ready("adapter", &["adapter", "shell", "--listen", &address]);
            let endpoint = format!("http://{address}");
            (Some((process, address)), endpoint)
        } else {
            (None, String::new())
        };
        if adapter.is_some() {
            pair.extend(["--local-agent-endpoint", &endpoint]);
        }
        home.attache(&pair).succeeds();
        let adapter = match adapter {
            Some((process, address)) => StormAdapter::Apart { process: Some(process), address },
            None => StormAdapter::Supervised,
        };
        let runtime = home.runtime(&[]);
        Self { runtime: Some(runtime), adapter, agent, home }
    }

    fn supervises(&self) -> bool {
        matches!(self.adapter, StormAdapter::Supervised)
    }

    /// The adapter of the runtime, once it listens. A runtime whose first adapter dies immediately gives up, rightly.
    fn supervised(&self) -> Option<u32> {
        let runtime = self.runtime.as_ref()?;
        let give_up = Instant::now() + Duration::from_secs(2);
        loop {
            let child = process::children(runtime.id()).first().copied();
            if child.is_some() && runtime.stderr().contains("adapter at http") {
                return child;
            }
            if Instant::now() > give_up {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

// === impl PlannedKill ===

impl PlannedKill {
    fn draw(dice: &mut SeededDice, devices: usize) -> Self {
        let target = match dice.below(10) {
            0 | 1 => KillTarget::Hub,
            2..=5 => KillTarget::Runtime(dice.below(devices)),
            _ => KillTarget::Adapter(dice.below(devices)),
        };
        let gap = dice.millis(20, 600);
        let pause = match dice.below(20) {
            // Longer than a lease.
            0 => dice.millis(3200, 4000),
            1..=3 => dice.millis(400, 1500),
            4..=8 => Duration::ZERO,
            _ => dice.millis(1, 300),
        };
        Self { target, gap, pause }
    }
}

// === impl KillTally ===

impl KillTally {
    fn count(&mut self, target: KillTarget) {
        match target {
            KillTarget::Hub => self.hubs += 1,
            KillTarget::Runtime(_) => self.runtimes += 1,
            KillTarget::Adapter(_) => self.adapters += 1,
        }
    }

    pub const fn all(self) -> usize {
        self.hubs + self.runtimes + self.adapters
    }
}

// === impl HubGeneration ===

impl HubGeneration {
    fn down(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn up(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    pub fn number(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
