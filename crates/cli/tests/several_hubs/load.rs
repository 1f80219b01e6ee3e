//! What people and devices do while hubs fail: they call agents, decide on requests, and use up a quota.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    cluster::{Caller, Cluster},
    verdict::AcknowledgedDecision,
};
use crate::harness::{TestHome, TestProcess};

/// The agents of [`DEVICES`] devices are called `agent-0`, `agent-1`, ….
pub const DEVICES: usize = 2;
/// The agent that asks before it does anything.
pub const ASKING: &str = "asking";
/// The agent with a quota.
pub const CAPPED: &str = "capped";

/// A run that the hub has acknowledged, and what it writes when it is executed.
pub struct AcknowledgedRun {
    pub id: String,
    pub mark: String,
}

/// A device with an agent of its own, which reaches the hubs through the proxy.
pub struct Device {
    _runtime: TestProcess,
    _adapter: Option<TestProcess>,
    _home: TestHome,
}

// === impl Device ===

impl Device {
    /// With the built-in shell.
    pub fn start(cluster: &Cluster, agent: &str) -> Self {
        Self::pair(cluster, agent, TestHome::new(), None)
    }

    /// With the example that asks. `None` where there is no Python.
    pub fn start_asking(cluster: &Cluster) -> Option<Self> {
        let home = TestHome::new();
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-asking-adapter/adapter.py");
        if !std::process::Command::new("python3").arg("--version").output().is_ok_and(|found| found.status.success()) {
            return None;
        }
        let adapter = TestProcess::spawn("python", home.program("python3").args([example, "0"]), &home.logs());
        Some(Self::pair(cluster, ASKING, home, Some(adapter)))
    }

    fn pair(cluster: &Cluster, agent: &str, home: TestHome, adapter: Option<TestProcess>) -> Self {
        cluster.nodes[0].add_agent(agent);
        let code = cluster.nodes[0].pairing_code(agent);
        let endpoint =
            adapter.as_ref().map(|adapter| adapter.says("listening on ").trim().replace("listening on ", ""));
        let mut pair = vec!["runtime", "pair", &code, "--api-base", &cluster.proxy.url];
        pair.extend(endpoint.iter().flat_map(|endpoint| ["--local-agent-endpoint", endpoint]));
        home.attache(&pair).succeeds();
        let concurrency: &[&str] = if adapter.is_some() { &[] } else { &["--concurrency", "2"] };
        let runtime = home.runtime(concurrency);
        Self { _runtime: runtime, _adapter: adapter, _home: home }
    }
}

/// Creates a run, and repeats that with its key until a hub answers. `None` if its quota is used up.
fn create(caller: &Caller, agent: &str, text: &str, mark: String, callback: Option<&str>) -> Option<AcknowledgedRun> {
    let mut body = json!({
        "agent_id": agent, "input": { "text": text }, "max_attempts": 1, "idempotency_key": mark,
    });
    if let Some(callback) = callback {
        body["callback_url"] = json!(callback);
    }
    let reply = caller.call("POST", "/api/v1/task-runs", Some(&body));
    if reply.status == 429 && reply.json()["error"]["code"] == "quota_exceeded" {
        return None;
    }
    // 200: it had been stored although its answer was lost.
    assert!(matches!(reply.status, 200 | 201), "{} {:?}", reply.status, String::from_utf8_lossy(&reply.body));
    Some(AcknowledgedRun { id: reply.json()["task_run_id"].as_str().unwrap().to_owned(), mark })
}

/// Calls agents until it is told to stop.
pub fn call(
    number: usize,
    caller: &Caller,
    executed: &Path,
    callback: &str,
    stop: &AtomicBool,
) -> Vec<AcknowledgedRun> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mark = format!("{number}-{round}");
        let agent = format!("agent-{}", (number + round) % DEVICES);
        let text = format!("echo {mark} >> {}", executed.display());
        acknowledged.extend(create(caller, &agent, &text, mark, Some(callback)));
        // Not more than the devices can work off.
        thread::sleep(Duration::from_millis(200));
    }
    acknowledged
}

/// Calls the agent with a quota, also when it is used up.
pub fn spend(number: usize, caller: &Caller, stop: &AtomicBool) -> Vec<AcknowledgedRun> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        acknowledged.extend(create(caller, CAPPED, "true", format!("{CAPPED}-{number}-{round}"), None));
        thread::sleep(Duration::from_millis(100));
    }
    acknowledged
}

/// Calls the agent that asks.
pub fn ask(caller: &Caller, stop: &AtomicBool) -> Vec<AcknowledgedRun> {
    let mut acknowledged = Vec::new();
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        acknowledged.extend(create(caller, ASKING, "run: true", format!("{ASKING}-{round}"), None));
        thread::sleep(Duration::from_millis(500));
    }
    acknowledged
}

/// Somebody who decides every request in the same way, while somebody else decides the other way. Goes on until everything
/// is decided.
pub fn decide(approved: bool, caller: &Caller, stop: &AtomicBool) -> Vec<AcknowledgedDecision> {
    let (mut acknowledged, mut seen) = (Vec::new(), BTreeSet::new());
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        let pending = caller.call("GET", "/api/v1/permission-requests?state=pending", None).expect(200).json();
        let pending: Vec<String> = pending["permission_requests"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|request| request["permission_request_id"].as_str().unwrap().to_owned())
            .collect();
        for request in pending {
            let path = format!("/api/v1/permission-requests/{request}/decision");
            let reply = caller.call("POST", &path, Some(&json!({ "approved": approved })));
            match reply.status {
                200 => {
                    if seen.insert(request.clone()) {
                        acknowledged.push(AcknowledgedDecision { request, approved });
                    }
                }
                409 => {}
                status => panic!("{status} {}", reply.text()),
            }
        }
        if is_last {
            return acknowledged;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Every item of a list, page after page.
pub fn list(caller: &Caller, path: &str, member: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = caller.call("GET", &format!("{path}&limit=200{cursor}"), None).expect(200).json();
        all.extend(page[member].as_array().into_iter().flatten().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}
