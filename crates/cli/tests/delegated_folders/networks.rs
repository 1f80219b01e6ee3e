//! Three machines in network namespaces: host and remote can each reach the hub, but not each other.

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// The hub's address for the other two.
pub const HUB: &str = "10.77.0.1";

/// The namespaces of one test, removed at its end.
#[derive(Debug)]
pub struct TestNetworks {
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkMachine {
    Hub,
    Host,
    Remote,
}

static COUNT: AtomicU32 = AtomicU32::new(0);

// === impl TestNetworks ===

impl TestNetworks {
    /// Prints why and returns None if namespaces can't be created (they need root).
    pub fn new() -> Option<Self> {
        let name = format!("at{}x{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let nets = Self { name };
        for machine in NetworkMachine::ALL {
            if !ip(&["netns", "add", &nets.of(machine)]) {
                eprintln!("skipped: network namespaces cannot be made here (root and the package iproute2 are needed)");
                return None;
            }
            nets.inside(machine, &["link", "set", "lo", "up"]);
        }
        nets.inside(NetworkMachine::Hub, &["addr", "add", &format!("{HUB}/32"), "dev", "lo"]);
        for (machine, subnet) in [(NetworkMachine::Host, "10.77.1"), (NetworkMachine::Remote, "10.77.2")] {
            let (near, far) = (machine.link(), format!("to-{}", machine.link()));
            let (inner, hub) = (nets.of(machine), nets.of(NetworkMachine::Hub));
            let made = ["link", "add", near, "netns", &inner, "type", "veth", "peer", "name", &far, "netns", &hub];
            assert!(ip(&made), "a cable between two machines");
            nets.inside(machine, &["addr", "add", &format!("{subnet}.2/30"), "dev", near]);
            nets.inside(NetworkMachine::Hub, &["addr", "add", &format!("{subnet}.1/30"), "dev", &far]);
            nets.inside(NetworkMachine::Hub, &["link", "set", &far, "up"]);
            nets.plug_in(machine);
        }
        Some(nets)
    }

    /// The namespace's name.
    pub fn of(&self, machine: NetworkMachine) -> String {
        format!("{}-{}", self.name, machine.link())
    }

    /// Disconnects the machine from the network.
    pub fn cut(&self, machine: NetworkMachine) {
        self.inside(machine, &["link", "set", machine.link(), "down"]);
    }

    pub fn plug_in(&self, machine: NetworkMachine) {
        let gateway = if machine == NetworkMachine::Host { "10.77.1.1" } else { "10.77.2.1" };
        self.inside(machine, &["link", "set", machine.link(), "up"]);
        self.inside(machine, &["route", "replace", &format!("{HUB}/32"), "via", gateway]);
    }

    #[track_caller]
    fn inside(&self, machine: NetworkMachine, args: &[&str]) {
        let namespace = self.of(machine);
        let all = [&["-n", namespace.as_str()], args].concat();
        assert!(ip(&all), "ip {all:?}");
    }
}

impl Drop for TestNetworks {
    fn drop(&mut self) {
        for machine in NetworkMachine::ALL {
            ip(&["netns", "delete", &self.of(machine)]);
        }
    }
}

// === impl NetworkMachine ===

impl NetworkMachine {
    const ALL: [Self; 3] = [Self::Hub, Self::Host, Self::Remote];

    const fn link(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Host => "host",
            Self::Remote => "remote",
        }
    }
}

fn ip(args: &[&str]) -> bool {
    let ran = Command::new("ip").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}
