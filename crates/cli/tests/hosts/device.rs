//! A paired device with a real host program, and its hub and model.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{model::TestModel, programs::HostProgram};
use crate::harness::{TestHome, TestHub, TestProcess, until};

pub struct HostDevice {
    pub home: TestHome,
    pub hub: TestHub,
    pub model: TestModel,
    pub runtime: TestProcess,
    /// The agent's working folder.
    pub folder: PathBuf,
}

/// The agent that the device serves.
pub const AGENT: &str = "coder";

/// Prints once why the tests are skipped.
#[macro_export]
macro_rules! device_or_skip {
    ($program:expr) => {
        match $crate::hosts::device::HostDevice::start($program) {
            Some(device) => device,
            None => {
                eprintln!("skipped: {} is not installed (./test installs it)", $program.file);
                return;
            }
        }
    };
}

// === impl HostDevice ===

impl HostDevice {
    /// Pairs with only `--local-executor-type`, as a person would. None if the host isn't installed.
    pub fn start(program: &HostProgram) -> Option<Self> {
        Self::on_hub(program, &[])
    }

    /// The same, with arguments for the hub.
    pub fn on_hub(program: &HostProgram, args: &[&str]) -> Option<Self> {
        let programs = program.found()?;
        let model = TestModel::start();
        // Not in the system's temporary folder, wherever this was built: Codex's sandbox refuses to work there.
        let below = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let is_temporary = below.starts_with(std::env::temp_dir());
        let mut home = TestHome::within(if is_temporary { "/var/tmp".as_ref() } else { below }, program.kind);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path))).unwrap();
        home.set("PATH", path.to_str().unwrap());
        (program.prepare)(&mut home, &model);
        let folder = home.path().join("project");
        fs::create_dir(&folder).unwrap();
        let hub = home.hub(args);
        hub.add_agent(AGENT);
        let code = hub.pairing_code(AGENT);
        let workspace = folder.to_str().unwrap();
        let pair = ["runtime", "pair", &code, "--api-base", &hub.url, "--local-executor-type", program.kind];
        home.attache(&[&pair[..], &["--workspace", workspace]].concat()).succeeds();
        let runtime = home.runtime(&[]);
        Some(Self { home, hub, model, runtime, folder })
    }

    /// Creates a run with a text and optional extra members of the request.
    #[track_caller]
    pub fn create(&self, text: &str, more: Value) -> String {
        let mut request = json!({"agent_id": AGENT, "input": {"text": text}});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = self.hub.post("/api/v1/task-runs", &request).expect(201);
        reply.json()["task_run_id"].as_str().unwrap().to_owned()
    }

    /// Hosts start slowly.
    #[track_caller]
    pub fn ended(&self, run: &str) -> Value {
        patiently(&format!("{run} to end"), || {
            let run = self.hub.run(run);
            ["completed", "failed", "cancelled"].contains(&run["status"].as_str().unwrap()).then_some(run)
        })
    }

    /// Answers every question of a run until it finishes.
    #[track_caller]
    pub fn answer(&self, run: &str, approved: bool) -> (Value, Vec<Value>) {
        let mut asked = Vec::new();
        loop {
            let next = patiently(&format!("{run} to ask or to end"), || {
                let now = self.hub.run(run);
                if ["completed", "failed", "cancelled"].contains(&now["status"].as_str().unwrap()) {
                    return Some(Err(now));
                }
                let open = self.hub.get("/api/v1/permission-requests?state=pending");
                let open = open["permission_requests"].as_array().unwrap().clone();
                open.into_iter().find(|request| request["task_run_id"] == run).map(Ok)
            });
            match next {
                Err(ended) => return (ended, asked),
                Ok(request) => {
                    let id = request["permission_request_id"].as_str().unwrap();
                    let path = format!("/api/v1/permission-requests/{id}/decision");
                    self.hub.post(&path, &json!({"approved": approved, "scope": "once"})).expect(200);
                    asked.push(request);
                }
            }
        }
    }

    /// Waits until the host works on the run: its model was called.
    #[track_caller]
    pub fn works(&self, before: usize) {
        patiently("the model to be asked", || (self.model.requests().len() > before).then_some(()));
    }

    /// Waits until no process of the run is left, and returns how long that took.
    #[track_caller]
    pub fn gone(&self, run: &str) -> Duration {
        let begun = Instant::now();
        until(&format!("the processes of {run} to be gone"), || processes_of(run).is_empty().then_some(()));
        begun.elapsed()
    }

    /// The number of end events in the run's log.
    #[track_caller]
    pub fn ends(&self, run: &str) -> usize {
        let events = self.hub.get(&format!("/api/v1/task-runs/{run}/events?after=0"));
        let ends = ["task.completed", "task.failed", "task.cancelled"];
        events["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| ends.contains(&event["type"].as_str().unwrap()))
            .count()
    }
}

/// The processes that carry the run's marker.
pub fn processes_of(run: &str) -> Vec<u32> {
    let mark = format!("ATTACHE_TASK_RUN_ID={run}");
    let carries = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(carries).collect()
}

/// Some hosts take most of a minute before they print anything.
#[track_caller]
pub fn patiently<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + Duration::from_secs(180);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < give_up, "waited three minutes for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
