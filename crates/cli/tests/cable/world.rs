//! A hub, devices that are connected to it through a faulty proxy, and a test that talks to the hub directly.

use std::{net::SocketAddr, path::PathBuf};

use attache_testkit::{FaultCounts, FaultyProxy, ProxyFaults};

use crate::{
    harness::{TestHome, TestHub, TestProcess},
    storm::{
        caller::StormCaller,
        world::{folder, quiet_address},
    },
};

pub const DEVICES: usize = 6;

/// An agent and the form of its tasks.
#[derive(Debug, Clone)]
pub struct CableAgent {
    pub name: String,
    pub kind: CableAgentKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CableAgentKind {
    /// Executes shell commands.
    Shell,
    /// The example that requests approval first.
    Asking,
}

// Processes before homes, so that they are stopped before their folders are removed.
pub struct CableWorld {
    hub: Option<TestHub>,
    devices: Vec<CableDevice>,
    proxy: FaultyProxy,
    _cable: tokio::runtime::Runtime,
    address: String,
    pub owner: StormCaller,
    pub home: TestHome,
}

struct CableDevice {
    _runtime: TestProcess,
    _adapter: Option<TestProcess>,
    agent: CableAgent,
    _home: TestHome,
}

// === impl CableWorld ===

impl CableWorld {
    pub fn start(seed: u64, faults: ProxyFaults) -> Self {
        let cable = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = quiet_address();
        let upstream: SocketAddr = address.parse().unwrap();
        let proxy = cable.block_on(FaultyProxy::start(upstream, seed, faults)).unwrap();
        let home = TestHome::within(&folder(), "attache-cable-hub");
        let hub = start_hub(&home, &address, &proxy);
        let far = format!("http://{}", proxy.address);
        let devices = (0..DEVICES).map(|number| CableDevice::start(&hub, &far, number)).collect();
        let url = format!("http://{address}");
        Self { owner: StormCaller::owner(&url, &hub.key), devices, proxy, _cable: cable, address, hub: Some(hub), home }
    }

    pub fn agents(&self) -> Vec<CableAgent> {
        self.devices.iter().map(|device| device.agent.clone()).collect()
    }

    /// Where every execution leaves a line.
    pub fn traces(&self) -> PathBuf {
        self.home.path().join("traces")
    }

    pub fn harm(&self) -> FaultCounts {
        self.proxy.fault_counts()
    }

    pub fn mend(&self) {
        self.proxy.stop_faults();
    }

    pub fn kill_hub(&mut self) {
        let hub = self.hub.take().expect("the hub runs");
        assert!(hub.process.is_running(), "the hub ended by itself:\n{}", hub.process.stderr());
        hub.process.kill();
        self.hub = Some(start_hub(&self.home, &self.address, &self.proxy));
    }
}

fn start_hub(home: &TestHome, address: &str, proxy: &FaultyProxy) -> TestHub {
    let public = format!("http://{}", proxy.address);
    // A lease that outlasts every fault: nothing may be lost here, not even for a good reason.
    home.hub(&["--listen", address, "--public-url", &public, "--heartbeat-timeout-ms", "60000"])
}

// === impl CableDevice ===

impl CableDevice {
    fn start(hub: &TestHub, far: &str, number: usize) -> Self {
        let kind = if number % 3 == 2 { CableAgentKind::Asking } else { CableAgentKind::Shell };
        let agent = CableAgent { name: format!("cable-{number}"), kind };
        let name = agent.name.as_str();
        hub.add_agent(name);
        let home = TestHome::within(&folder(), &format!("attache-{name}"));
        let adapter = (kind == CableAgentKind::Asking).then(|| {
            let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-asking-adapter/adapter.py");
            TestProcess::spawn("python", home.program("python3").args([example, "0"]), &home.logs())
        });
        let endpoint = adapter
            .as_ref()
            .map(|python| python.says("listening on ").trim().trim_start_matches("listening on ").to_owned());
        // Pairing is retried until it succeeds: a code that was used up on the way is replaced.
        loop {
            let code = hub.pairing_code(name);
            let mut pair = vec!["runtime", "pair", &code, "--api-base", far, "--device-name", name];
            if let Some(endpoint) = &endpoint {
                pair.extend(["--local-agent-endpoint", endpoint]);
            }
            if home.attache(&pair).status == Some(0) {
                break;
            }
        }
        let runtime = home.runtime(&[]);
        Self { _runtime: runtime, _adapter: adapter, agent, _home: home }
    }
}
