//! Third-party A2A clients run every operation against a real hub with a real runtime and the conformance agent:
//! `a2a-sdk` 1.3.0 and 0.3.26 (Python), `@a2a-js/sdk` 1.3.0 and `a2a-cli` 0.4.5.
//!
//! `./test` installs them into the folder in `ATTACHE_INTEROP`; without it, these tests report that they are
//! skipped. The output of the scripts in `tests/interop` is shown when they fail.

mod command;
mod frameworks;
mod scripts;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestProcess};

/// The agent that executes the tasks; its two companions have no device.
const AGENT: &str = "tester";
/// The extension that `tester-strict` requires.
const STRICT: &str = "https://example.com/ext/strict/v1";
/// A script performs about sixty operations, each through a hub, a runtime and an adapter. The machine may be busy.
const INTEROP_TIMEOUT: Duration = Duration::from_secs(300);

/// A hub with the agents that the scripts expect. Its processes stop when it is dropped.
struct InteropWorld {
    hub: TestHub,
    home: TestHome,
    _runtime: TestProcess,
    _adapter: TestProcess,
    _device: TestHome,
}

// === impl InteropWorld ===

impl InteropWorld {
    fn new() -> Self {
        let home = TestHome::new();
        let hub = home.hub(&["--default-agent", AGENT, "--egress-allow", "127.0.0.0/8"]);
        let agents = [
            (AGENT.to_owned(), json!({})),
            (format!("{AGENT}-plain"), json!({ "streaming": false, "push": false, "extended_card": false })),
            (format!("{AGENT}-strict"), json!({ "extensions": [{ "uri": STRICT, "required": true }] })),
        ];
        for (name, a2a) in agents {
            hub.post("/api/v1/agent-accounts", &json!({ "name": name, "a2a": a2a })).expect(201);
        }
        let device = TestHome::new();
        let (adapter, endpoint) = device.adapter(&["conformance", "--streaming-timeout", "2"]);
        let code = hub.pairing_code(AGENT);
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--local-agent-endpoint", &endpoint];
        device.attache(&pair).succeeds();
        let runtime = device.runtime(&["--concurrency", "50"]);
        Self { hub, home, _runtime: runtime, _adapter: adapter, _device: device }
    }

    /// Runs a client to completion. The key is passed in the environment variable that the client reads.
    #[track_caller]
    fn run(&self, name: &str, key: &str, program: &Path, args: &[&str]) -> String {
        let mut command = self.home.program(program);
        command.args(args).env(key, &self.hub.key);
        let process = TestProcess::spawn(name, &mut command, &self.home.logs());
        let give_up = Instant::now() + INTEROP_TIMEOUT;
        let status = loop {
            if let Some(status) = process.try_wait() {
                break status;
            }
            assert!(Instant::now() < give_up, "{name} did not end within {INTEROP_TIMEOUT:?}");
            std::thread::sleep(Duration::from_millis(20));
        };
        // Its output is shown if the test fails.
        assert!(status.success(), "{name} ended with {status}");
        process.stdout()
    }

    /// The card of one of this hub's agents.
    fn card_url(&self, agent: &str) -> String {
        format!("{}/a2a/{agent}/.well-known/agent-card.json", self.hub.url)
    }

    /// Copies the scripts next to the Node packages: Node resolves packages relative to the script's folder.
    fn node_script(&self, installed: &Path, script: &str) -> PathBuf {
        let folder = self.home.path().join("node");
        std::fs::create_dir_all(&folder).unwrap();
        let modules = folder.join("node_modules");
        if !modules.exists() {
            std::os::unix::fs::symlink(installed.join("node_modules"), modules).unwrap();
        }
        let copy = folder.join(script);
        std::fs::copy(scripts_folder().join(script), &copy).unwrap();
        copy
    }
}

pub fn scripts_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop").canonicalize().unwrap()
}

/// The folder of a client in `ATTACHE_INTEROP`. Prints why and returns `None` if it isn't completely installed.
#[allow(clippy::print_stdout, reason = "a test that is skipped says why")]
pub fn installed(client: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("ATTACHE_INTEROP") else {
        println!("skipped: ATTACHE_INTEROP is not set; ./test installs the clients and sets it");
        return None;
    };
    let found = Path::new(&folder).join(client);
    if !found.join(".installed").exists() {
        println!("skipped: {} has no installed client; ./test installs it", found.display());
        return None;
    }
    Some(found)
}

fn member<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}
