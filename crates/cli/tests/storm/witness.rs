//! Continuously checks that no run is still running after its lease expired.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use attache_protocol::Timestamp;
use serde_json::{Value, json};

use super::{
    caller::StormCaller,
    journal::StormJournal,
    world::{HubGeneration, SWEEP},
};

pub struct LeaseWitness<'a> {
    /// An agent without runs, whose heartbeat returns the hub's time.
    pub agent: String,
    pub clock: StormCaller,
    pub owner: StormCaller,
    pub generation: HubGeneration,
    pub journal: &'a StormJournal,
}

/// Extra time for one sweep on a busy machine.
const SLACK: Duration = Duration::from_secs(4);

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

// === impl LeaseWitness ===

impl LeaseWitness<'_> {
    /// The number of checks, and the longest time that a run was seen running after its lease expired.
    pub fn watch(&self, end: &AtomicBool) -> (usize, Duration) {
        let (mut looks, mut longest) = (0, Duration::ZERO);
        let mut up = None;
        while !end.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(40));
            let generation = self.generation.number();
            let Some(now) = self.now() else { continue };
            // A hub that was down couldn't sweep: its time counts from its return.
            let since = match up {
                Some((known, since)) if known == generation => since,
                _ => up.insert((generation, now)).1,
            };
            let Some(list) = self.owner.get("/api/v1/task-runs?status=running&limit=200") else { continue };
            looks += 1;
            for run in list["task_runs"].as_array().into_iter().flatten() {
                let Some(lease) = time(&run["lease_expires_at"]) else {
                    self.journal.fault(format!("a running run has no lease: {run}"));
                    continue;
                };
                let overdue = now.since(lease.max(since));
                longest = longest.max(overdue);
                if overdue > SWEEP + SLACK {
                    self.journal.fault(format!("still running {overdue:?} after its lease, at {now}: {run}"));
                }
            }
        }
        (looks, longest)
    }

    fn now(&self) -> Option<Timestamp> {
        let body = json!({ "agent_id": self.agent, "running": [] });
        let reply = self.clock.call("POST", "/api/v1/agent-runtimes/runtime/heartbeat", Some(&body)).ok()?;
        if reply.status != 200 {
            return None;
        }
        time(&reply.json()["server_time"])
    }
}
