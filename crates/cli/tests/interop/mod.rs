//! Clients of A2A that share no code with us, through every operation, at a real hub with a real runtime and the agent of
//! the conformance kits: `a2a-sdk` 1.3.0 and 0.3.26 (Python), `@a2a-js/sdk` 1.3.0 and `a2a-cli` 0.4.5.
//!
//! `./test` installs them into the folder that `ATTACHE_INTEROP` names; without it these tests say that they are skipped.
//! What the scripts in `tests/interop` print is shown when they fail.

mod command;
mod frameworks;
mod scripts;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestProcess};

/// The agent behind which everything is; its two companions have no device.
const AGENT: &str = "tester";
/// The extension that `tester-strict` requires.
const STRICT: &str = "https://example.com/ext/strict/v1";
/// A script does some sixty things, each through a hub, a runtime and an adapter. The machine may be busy.
const INTEROP_TIMEOUT: Duration = Duration::from_secs(300);

/// A hub with the agents that the scripts expect. The processes end with it.
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

    /// Runs a client to its end. The key goes into the environment variable that the client reads it from.
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
        // What it said is shown when it is dropped by a failing test.
        assert!(status.success(), "{name} ended with {status}");
        process.stdout()
    }

    /// The card of an agent of this hub.
    fn card_url(&self, agent: &str) -> String {
        format!("{}/a2a/{agent}/.well-known/agent-card.json", self.hub.url)
    }

    /// Puts the scripts beside the packages of Node, since it looks for them above a script's own folder.
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

fn scripts_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/interop").canonicalize().unwrap()
}

/// The folder of a client below `ATTACHE_INTEROP`; `None`, and a line that says so, where it is not installed as a whole.
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
