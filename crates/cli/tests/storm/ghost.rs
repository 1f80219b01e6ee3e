//! A device simulated over bare HTTP: it loses responses, forgets claims, and remembers every accepted result.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};

use super::{caller::StormCaller, dice::SeededDice, journal::StormJournal};

/// A result that the hub acknowledged with 200.
#[derive(Debug, Clone)]
pub struct AcceptedResult {
    pub run: String,
    pub epoch: i64,
    pub output: Value,
}

pub struct GhostDevice<'a> {
    pub agent: String,
    pub calls: StormCaller,
    pub journal: &'a StormJournal,
}

// === impl GhostDevice ===

impl GhostDevice<'_> {
    /// Misbehaves until told to stop, then works correctly until told to finish.
    pub fn haunt(&self, seed: u64, stop: &AtomicBool, end: &AtomicBool) -> Vec<AcceptedResult> {
        let mut dice = SeededDice::new(seed, 50);
        let mut taken = Vec::new();
        while !end.load(Ordering::SeqCst) {
            let honest = stop.load(Ordering::SeqCst);
            self.beat(&BTreeSet::new());
            match if honest { 9 } else { dice.below(10) } {
                // The connection is closed before there is a response.
                0 | 1 => drop(self.calls.send("POST", &self.pull(300))),
                // The response is written but never read.
                2 | 3 => {
                    if let Ok(unread) = self.calls.send("POST", &self.pull(300)) {
                        std::thread::sleep(dice.millis(1, 400));
                        drop(unread);
                    }
                }
                // The claim arrives and is forgotten, as after a crash.
                4 => drop(self.claim()),
                // A restart that releases claims it never started.
                5 => self.hand_back(),
                _ => taken.extend(self.work(&mut dice)),
            }
            std::thread::sleep(dice.millis(1, 60));
        }
        taken
    }

    fn pull(&self, wait: usize) -> String {
        format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms={wait}", self.agent)
    }

    fn beat(&self, running: &BTreeSet<String>) {
        let body = json!({ "agent_id": self.agent, "running": running });
        if let Ok(reply) = self.calls.call("POST", "/api/v1/agent-runtimes/runtime/heartbeat", Some(&body))
            && !matches!(reply.status, 200 | 503)
        {
            self.journal.fault(format!("the ghost's heartbeat: {} {}", reply.status, reply.text()));
        }
    }

    fn claim(&self) -> Option<Value> {
        let reply = self.calls.call("POST", &self.pull(200), None).ok().filter(|reply| reply.status == 200)?;
        Some(reply.json()["task_run"].clone()).filter(Value::is_object)
    }

    fn hand_back(&self) {
        let path = format!("/api/v1/task-runs?status=running&agent_id={}", self.agent);
        let Some(list) = self.calls.get(&path) else { return };
        for run in list["task_runs"].as_array().into_iter().flatten() {
            let path = format!("/api/v1/task-runs/{}/release", run["task_run_id"].as_str().unwrap_or_default());
            let _ = self.calls.call("POST", &path, Some(&json!({ "epoch": run["epoch"] })));
        }
    }

    /// Claims a run and completes it; the hub may disappear at any moment.
    fn work(&self, dice: &mut SeededDice) -> Option<AcceptedResult> {
        let claimed = self.claim()?;
        let run = claimed["task_run_id"].as_str()?.to_owned();
        let epoch = claimed["epoch"].as_i64()?;
        self.beat(&BTreeSet::from([run.clone()]));
        std::thread::sleep(Duration::from_millis(1));
        let progress = json!({ "epoch": epoch, "chunk": "boo" });
        let _ = self.calls.call("POST", &format!("/api/v1/task-runs/{run}/progress"), Some(&progress));
        let output = json!({ "text": format!("done {} in epoch {epoch}", claimed["input"]["text"].as_str()?) });
        let report = json!({ "epoch": epoch, "output": output });
        let path = format!("/api/v1/task-runs/{run}/complete");
        let reply = self.calls.insist("POST", &path, Some(&report));
        match reply.status {
            200 => {
                if dice.once_in(2) {
                    let again = self.calls.insist("POST", &path, Some(&report));
                    if again.status != 200 {
                        self.journal.fault(format!("{run} was completed, and then: {}", again.text()));
                    }
                }
                Some(AcceptedResult { run, epoch, output })
            }
            // The claim was lost or the run was cancelled in the meantime.
            409 => None,
            status => {
                self.journal.fault(format!("completing {run} was answered with {status}: {}", reply.text()));
                None
            }
        }
    }
}
