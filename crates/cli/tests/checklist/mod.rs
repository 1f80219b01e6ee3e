//! The check-list of seed 002 §9 and related tests: a hub, devices and adapters, each a separate process with its
//! own home.

mod lines;
mod orphan;
mod pairing;
mod work;

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::harness::{TestHome, TestHub, TestProcess, until};

/// A hub with its own home.
struct ChecklistWorld {
    hub: TestHub,
    home: TestHome,
}

/// A device that is paired with an agent. The test starts its processes.
struct ChecklistDevice {
    home: TestHome,
    agent_id: String,
    runtime_id: String,
}

/// A file that a task waits for, so that the test decides when the task continues.
struct TaskGate(PathBuf);

/// After this many milliseconds, the hub gives up on a silent device and its claims.
const SHORT: &str = "4000";

// === impl ChecklistWorld ===

impl ChecklistWorld {
    fn new() -> Self {
        Self::with(&[])
    }

    /// A hub with short timeouts.
    fn impatient() -> Self {
        Self::with(&["--heartbeat-timeout-ms", SHORT, "--sweep-ms", "50"])
    }

    fn with(args: &[&str]) -> Self {
        let home = TestHome::new();
        Self { hub: home.hub(args), home }
    }

    /// A new device, paired with a code that a person created for the agent.
    #[track_caller]
    fn device(&self, agent: &str, args: &[&str]) -> ChecklistDevice {
        self.pair(TestHome::new(), agent, args)
    }

    #[track_caller]
    fn pair(&self, home: TestHome, agent: &str, args: &[&str]) -> ChecklistDevice {
        let code = self.hub.pairing_code(agent);
        let mut all = vec!["runtime", "pair", &code, "--api-base", &self.hub.url, "--json"];
        all.extend(args);
        let paired = home.attache(&all).succeeds().json();
        let text = |name: &str| paired[name].as_str().unwrap().to_owned();
        ChecklistDevice { agent_id: text("agent_id"), runtime_id: text("runtime_id"), home }
    }

    /// An agent named `builder` and a device with a supervised shell adapter.
    #[track_caller]
    fn builder(&self) -> ChecklistDevice {
        self.hub.add_agent("builder");
        self.device("builder", &["--device-name", "laptop"])
    }

    /// Kills the hub with `kill -9` and restarts it at the same address with the same data.
    #[track_caller]
    fn start_hub_again(&mut self) {
        let address = self.hub.address().to_owned();
        self.hub.process.kill();
        self.hub = self.home.hub(&["--listen", &address]);
    }

    /// The agents of the hub, by id.
    #[track_caller]
    fn agents(&self) -> Vec<String> {
        let list = self.hub.get("/api/v1/agent-accounts");
        let agents = list["agent_accounts"].as_array().unwrap();
        agents.iter().map(|agent| agent["agent_id"].as_str().unwrap().to_owned()).collect()
    }

    /// How a run failed: `code` and `error` of its result.
    #[track_caller]
    fn failure(&self, run: &str) -> (String, String) {
        let run = self.hub.ended(run);
        assert_eq!(run["status"], "failed", "{run}");
        let text = |name: &str| run["task_result"][name].as_str().unwrap_or_default().to_owned();
        (text("code"), text("error"))
    }
}

// === impl ChecklistDevice ===

impl ChecklistDevice {
    fn key(&self) -> String {
        format!("{}/{}", self.agent_id, self.runtime_id)
    }

    /// The profile of this pairing on disk.
    #[track_caller]
    fn profile(&self) -> Value {
        self.home.profiles()["profiles"][self.key()].clone()
    }

    #[track_caller]
    fn token(&self) -> String {
        self.profile()["runtime_token"].as_str().unwrap().to_owned()
    }

    fn gate(&self, name: &str) -> TaskGate {
        TaskGate(self.home.path().join(name))
    }

    /// The ledger steps of a run, in order.
    #[track_caller]
    fn steps(&self, run: &str) -> Vec<String> {
        let lines = self.home.ledger(&self.agent_id);
        lines.iter().filter(|line| line["task_run_id"] == run).map(step).collect()
    }

    /// Waits until the ledger has a step of the run.
    #[track_caller]
    fn steps_until(&self, run: &str, step: &str) -> Vec<String> {
        until(&format!("{step} of {run} in the ledger"), || {
            Some(self.steps(run)).filter(|steps| steps.iter().any(|found| found == step))
        })
    }

    /// The process ids that a task recorded, once there are enough.
    #[track_caller]
    fn pids(&self, file: &str, count: usize) -> Vec<u32> {
        let path = self.home.path().join(file);
        until(&format!("{count} process ids in {file}"), || {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let pids: Vec<_> = text.lines().filter_map(|line| line.parse().ok()).collect();
            (pids.len() == count && text.ends_with('\n')).then_some(pids)
        })
    }
}

fn step(line: &Value) -> String {
    line["event"].as_str().unwrap().to_owned()
}

// === impl TaskGate ===

impl TaskGate {
    /// A script that waits for the gate, then prints something.
    fn then_say(&self, text: &str) -> String {
        format!("while [ ! -e '{}' ]; do sleep 0.05; done; echo {text}", self.0.display())
    }

    fn open(&self) {
        fs::write(&self.0, "").unwrap();
    }
}

/// Kills a runtime or an adapter and all its child processes, as power loss would.
fn lose(process: &TestProcess) {
    let children = crate::harness::process::children(process.id());
    process.kill();
    for child in children {
        crate::harness::process::signal(child, "KILL");
    }
}
