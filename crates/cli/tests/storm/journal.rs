//! What clients were told: every acknowledged create, cancel and result, and whether a later response contradicts it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;

/// A client's job.
#[derive(Debug, Clone)]
pub struct StormJob {
    /// Unique; also the idempotency key of its run.
    pub name: String,
    pub agent: String,
    pub text: String,
    pub max_attempts: i64,
    pub plan: StormPlan,
}

/// How a job ends without failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StormPlan {
    Complete,
    Fail,
    /// It takes too long, so the client cancels it.
    Cancel,
}

/// An acknowledged create.
#[derive(Debug, Clone)]
pub struct StormEntry {
    pub job: StormJob,
    pub run: String,
    /// The latest known state of the run.
    seen: Value,
    /// The hub confirmed a cancellation.
    pub cancelled: bool,
}

#[derive(Debug, Default)]
pub struct StormJournal {
    entries: Mutex<BTreeMap<String, StormEntry>>,
    faults: Mutex<Vec<String>>,
}

/// Whether the run is finished.
pub fn is_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled"))
}

// === impl StormJournal ===

impl StormJournal {
    pub fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }

    pub fn faults(&self) -> Vec<String> {
        self.faults.lock().unwrap().clone()
    }

    pub fn entries(&self) -> Vec<StormEntry> {
        self.held().values().cloned().collect()
    }

    /// The same records without faults.
    pub fn copied(&self) -> Self {
        Self { entries: Mutex::new(self.held().clone()), faults: Mutex::default() }
    }

    /// The hub acknowledged the create of a job, possibly again.
    pub fn created(&self, job: &StormJob, run: &Value) {
        let id = run["task_run_id"].as_str().unwrap_or_default().to_owned();
        let mut entries = self.held();
        let entry = entries.entry(job.name.clone()).or_insert_with(|| StormEntry {
            job: job.clone(),
            run: id.clone(),
            seen: run.clone(),
            cancelled: false,
        });
        let first = entry.run.clone();
        drop(entries);
        if first == id {
            self.saw(&job.name, run);
        } else {
            self.fault(format!("{} is {first} and {id}", job.name));
        }
    }

    /// The hub returned the run of a job; nothing it reported before may be undone.
    pub fn saw(&self, name: &str, run: &Value) {
        let mut entries = self.held();
        let entry = entries.get_mut(name).expect("only jobs that were created are looked at");
        let before = std::mem::replace(&mut entry.seen, run.clone());
        drop(entries);
        if is_ended(&before) && before != *run {
            self.fault(format!("{name} had ended and has changed:\n{before}\n{run}"));
        }
        for member in ["epoch", "last_seq"] {
            if run[member].as_i64() < before[member].as_i64() {
                self.fault(format!("{name} went back in {member}:\n{before}\n{run}"));
            }
        }
        if run["attempt"].as_i64() > run["max_attempts"].as_i64() {
            self.fault(format!("{name} had too many attempts: {run}"));
        }
    }

    pub fn cancelled(&self, name: &str) {
        self.held().get_mut(name).expect("only jobs that were created are cancelled").cancelled = true;
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, StormEntry>> {
        self.entries.lock().unwrap()
    }
}
