//! A hub, devices whose every word to it goes over one bad cable, and a test that speaks to the hub directly.

use std::{net::SocketAddr, path::PathBuf};

use attache_testkit::{Faults, Harm, Proxy};

use crate::{
    harness::{Home, Process, Server},
    storm::{
        caller::Caller,
        world::{folder, quiet_address},
    },
};

pub const DEVICES: usize = 6;

/// An agent and what its tasks look like.
#[derive(Debug, Clone)]
pub struct Agent {
    pub name: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Executes shell commands.
    Shell,
    /// The example that asks for permission first.
    Asking,
}

// The processes come before the homes, so that they are gone before their folders are.
pub struct World {
    hub: Option<Server>,
    devices: Vec<Device>,
    proxy: Proxy,
    _cable: tokio::runtime::Runtime,
    address: String,
    pub owner: Caller,
    pub home: Home,
}

struct Device {
    _runtime: Process,
    _adapter: Option<Process>,
    agent: Agent,
    _home: Home,
}

// === impl World ===

impl World {
    pub fn start(seed: u64, faults: Faults) -> Self {
        let cable = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = quiet_address();
        let upstream: SocketAddr = address.parse().unwrap();
        let proxy = cable.block_on(Proxy::start(upstream, seed, faults)).unwrap();
        let home = Home::within(&folder(), "attache-cable-hub");
        let hub = start_hub(&home, &address, &proxy);
        let far = format!("http://{}", proxy.address);
        let devices = (0..DEVICES).map(|number| Device::start(&hub, &far, number)).collect();
        let url = format!("http://{address}");
        Self { owner: Caller::owner(&url, &hub.key), devices, proxy, _cable: cable, address, hub: Some(hub), home }
    }

    pub fn agents(&self) -> Vec<Agent> {
        self.devices.iter().map(|device| device.agent.clone()).collect()
    }

    /// Where every execution leaves a line.
    pub fn traces(&self) -> PathBuf {
        self.home.path().join("traces")
    }

    pub fn harm(&self) -> Harm {
        self.proxy.harm()
    }

    pub fn mend(&self) {
        self.proxy.mend();
    }

    pub fn kill_hub(&mut self) {
        let hub = self.hub.take().expect("the hub runs");
        assert!(hub.process.is_running(), "the hub ended by itself:\n{}", hub.process.stderr());
        hub.process.kill();
        self.hub = Some(start_hub(&self.home, &self.address, &self.proxy));
    }
}

fn start_hub(home: &Home, address: &str, proxy: &Proxy) -> Server {
    let public = format!("http://{}", proxy.address);
    // A lease that no bad cable outlasts: here nothing may be lost, not even for a good reason.
    home.hub(&["--listen", address, "--public-url", &public, "--heartbeat-timeout-ms", "60000"])
}

// === impl Device ===

impl Device {
    fn start(hub: &Server, far: &str, number: usize) -> Self {
        let kind = if number % 3 == 2 { Kind::Asking } else { Kind::Shell };
        let agent = Agent { name: format!("cable-{number}"), kind };
        let name = agent.name.as_str();
        hub.add_agent(name);
        let home = Home::within(&folder(), &format!("attache-{name}"));
        let adapter = (kind == Kind::Asking).then(|| {
            let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-asking-adapter/adapter.py");
            Process::spawn("python", home.program("python3").args([example, "0"]), &home.logs())
        });
        let endpoint = adapter
            .as_ref()
            .map(|python| python.says("listening on ").trim().trim_start_matches("listening on ").to_owned());
        // Pairing is tried until it succeeds: a code that was used up on the way is replaced by a new one.
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
