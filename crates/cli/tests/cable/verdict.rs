//! The work that goes over the faulty connection, and what must hold afterwards.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::world::{CableAgent, CableAgentKind};
use crate::storm::caller::StormCaller;

/// How long a run may take once the connection is good again.
const SETTLE: Duration = Duration::from_secs(90);

/// One run and the output that it must have.
#[derive(Debug)]
pub struct ExpectedRun {
    run: String,
    name: String,
    kind: CableAgentKind,
    output: String,
}

#[derive(Debug)]
pub struct CableFinding {
    pub runs: Vec<ExpectedRun>,
    pub decisions: usize,
}

/// Gives one agent task after task until it is time to stop.
pub fn work(owner: &StormCaller, agent: &CableAgent, traces: &Path, stop: &AtomicBool) -> Vec<ExpectedRun> {
    let mut done = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let name = format!("{}-{}", agent.name, done.len());
        let trace = |step: &str| format!("echo {step} {name} >> '{}'", traces.display());
        let (begin, end) = (trace("begin"), trace("end"));
        let lines: Vec<String> = (1..=12).map(|number| format!("{name} says {number}")).collect();
        let (text, output) = match agent.kind {
            CableAgentKind::Shell => {
                let speak = format!("for i in $(seq 1 {}); do echo {name} says $i; sleep 0.05; done", lines.len());
                (format!("{begin}; {speak}; {end}"), lines.join("\n") + "\n")
            }
            CableAgentKind::Asking => {
                let command = format!("{begin}; echo {name} was allowed; {end}");
                (format!("say: {name} begins\nrun: {command}\nsay: {name} ends"), said(&name))
            }
        };
        let body = json!({ "agent_id": agent.name, "input": { "text": text }, "idempotency_key": name });
        let reply = owner.insist("POST", "/api/v1/task-runs", Some(&body));
        let run = reply.json()["task_run_id"].as_str().unwrap_or_else(|| panic!("{}", reply.text())).to_owned();
        await_end(owner, &run, stop);
        done.push(ExpectedRun { run, name, kind: agent.kind, output });
    }
    done
}

fn said(name: &str) -> String {
    format!("{name} begins\n{name} was allowed\n{name} ends")
}

/// Waits for a run to finish; once it is time to stop, with a time limit.
fn await_end(owner: &StormCaller, run: &str, stop: &AtomicBool) {
    let mut give_up = None;
    loop {
        let ended = owner
            .get(&format!("/api/v1/task-runs/{run}"))
            .is_some_and(|run| ["completed", "failed", "cancelled"].contains(&run["status"].as_str().unwrap()));
        if ended {
            return;
        }
        if stop.load(Ordering::SeqCst) && Instant::now() > *give_up.get_or_insert_with(|| Instant::now() + SETTLE) {
            return;
        }
        thread::sleep(Duration::from_millis(40));
    }
}

/// Approves every request three times, until all work is done. Returns the number of decided requests.
pub fn decide(owner: &StormCaller, over: &AtomicBool) -> usize {
    let mut settled = 0;
    while !over.load(Ordering::SeqCst) {
        let pending = owner.get("/api/v1/permission-requests?state=pending").unwrap_or_default();
        for asked in pending["permission_requests"].as_array().into_iter().flatten() {
            let id = asked["permission_request_id"].as_str().unwrap();
            let path = format!("/api/v1/permission-requests/{id}/decision");
            for _ in 0..3 {
                let reply = owner.insist("POST", &path, Some(&json!({ "approved": true })));
                assert_eq!(reply.status, 200, "{}", reply.text());
            }
            settled += 1;
        }
        thread::sleep(Duration::from_millis(30));
    }
    settled
}

// === impl CableFinding ===

impl CableFinding {
    /// Everything that violates the expectations.
    pub fn faults(&self, owner: &StormCaller, traces: &Path) -> Vec<String> {
        let traces = fs::read_to_string(traces).unwrap_or_default();
        let mut executed: BTreeMap<&str, usize> = BTreeMap::new();
        for line in traces.lines() {
            *executed.entry(line).or_default() += 1;
        }
        let mut faults = Vec::new();
        for done in &self.runs {
            for step in ["begin", "end"] {
                let line = format!("{step} {}", done.name);
                let times = executed.get(line.as_str()).copied().unwrap_or(0);
                if times != 1 {
                    faults.push(format!("`{line}` was executed {times} times ({})", done.run));
                }
            }
            done.check(owner, &mut faults);
        }
        faults
    }
}

// === impl ExpectedRun ===

impl ExpectedRun {
    fn check(&self, owner: &StormCaller, faults: &mut Vec<String>) {
        let run = owner.insist("GET", &format!("/api/v1/task-runs/{}", self.run), None).json();
        if run["status"] != "completed" || run["task_result"]["text"] != self.output.as_str() {
            faults.push(format!("{} is {run}", self.name));
            return;
        }
        let events = self.events(owner);
        for (index, event) in events.iter().enumerate() {
            if event["seq"] != json!(index + 1) {
                return faults.push(format!("{}: event {} came at place {}", self.name, event["seq"], index + 1));
            }
        }
        let texts = events.iter().filter(|event| event["type"] == "task.chunk");
        let chunks: String = texts.map(|event| event["data"]["text"].as_str().unwrap()).collect();
        if chunks.trim_end() != self.output.trim_end() {
            faults.push(format!("{}: the chunks are {chunks:?} and not {:?}", self.name, self.output));
        }
        let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
        let questions = usize::from(self.kind == CableAgentKind::Asking);
        let counts = [count("permission.requested"), count("permission.decided"), count("task.completed")];
        if counts != [questions, questions, 1] {
            faults.push(format!("{}: asked, decided, completed {counts:?} times", self.name));
        }
    }

    fn events(&self, owner: &StormCaller) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let after = events.last().map_or(0, |event| event["seq"].as_i64().unwrap());
            let path = format!("/api/v1/task-runs/{}/events?after={after}&limit=200", self.run);
            let page = owner.insist("GET", &path, None).json();
            let page = page["events"].as_array().unwrap();
            if page.is_empty() {
                return events;
            }
            events.extend(page.iter().cloned());
        }
    }
}
