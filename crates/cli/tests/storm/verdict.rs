//! After the storm: compares the hub's data with what clients, workers, ledgers and the tasks themselves recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

use super::{
    caller::StormCaller,
    ghost::AcceptedResult,
    journal::{StormEntry, StormJournal, StormPlan, is_ended},
    world::StormDevice,
};

/// What the storm covered, so that a storm in which nothing happened is noticed.
#[derive(Debug, Default)]
pub struct StormFindings {
    pub runs: usize,
    pub completed: usize,
    pub failed: BTreeMap<String, usize>,
    pub cancelled: usize,
    /// Counted by reason.
    pub requeued: BTreeMap<String, usize>,
    /// Results of devices and of the ghost that the hub acknowledged.
    pub acknowledged: usize,
    pub executions: usize,
}

/// A claim as recorded in a device's ledger.
#[derive(Debug, Default)]
struct LedgerClaim {
    started: bool,
    outcome: Option<Value>,
    reported: bool,
}

/// Everything that the checks read.
pub struct StormEvidence<'a> {
    pub owner: &'a StormCaller,
    pub journal: &'a StormJournal,
    pub devices: &'a [StormDevice],
    pub ghost: &'a [AcceptedResult],
    pub traces: &'a Path,
}

// === impl StormEvidence ===

impl StormEvidence<'_> {
    /// Records every contradiction in the journal.
    pub fn weigh(&self) -> StormFindings {
        let mut findings = StormFindings::default();
        let stored = self.stored();
        let entries = self.journal.entries();
        let known: BTreeSet<_> = entries.iter().map(|entry| entry.run.as_str()).collect();
        for run in stored.keys().filter(|run| !known.contains(run.as_str())) {
            self.fault(format!("nobody was told of {run}: a job ran twice"));
        }
        let ledgers = self.ledgers();
        let (begun, ended) = self.traces();
        findings.executions = begun.values().sum();
        for entry in &entries {
            let Some(run) = stored.get(&entry.run) else {
                self.fault(format!("{} of {} was acknowledged and does not exist", entry.run, entry.job.name));
                continue;
            };
            self.journal.saw(&entry.job.name, run);
            self.weigh_end(entry, run, &mut findings);
            self.weigh_events(run, &mut findings);
            let claims = ledgers.get(&entry.run);
            findings.acknowledged += self.weigh_ledger(entry, run, claims);
            self.weigh_executions(entry, run, claims, &begun, &ended);
        }
        for taken in self.ghost {
            findings.acknowledged += 1;
            let run = stored.get(&taken.run).unwrap_or(&Value::Null);
            if run["status"] != "completed" || run["epoch"] != taken.epoch || run["task_result"] != taken.output {
                self.fault(format!("the hub took {taken:?} and holds {run}"));
            }
        }
        findings.runs = stored.len();
        findings
    }

    fn fault(&self, fault: String) {
        self.journal.fault(fault);
    }

    /// Every run of the hub.
    fn stored(&self) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        let mut cursor = String::new();
        loop {
            let page = self.owner.get(&format!("/api/v1/task-runs?limit=200{cursor}")).expect("the weather is good");
            for run in page["task_runs"].as_array().unwrap() {
                all.insert(run["task_run_id"].as_str().unwrap().to_owned(), run.clone());
            }
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return all,
            }
        }
    }

    fn weigh_end(&self, entry: &StormEntry, run: &Value, findings: &mut StormFindings) {
        let name = &entry.job.name;
        if !is_ended(run) {
            return self.fault(format!("{name} has not ended: {run}"));
        }
        if entry.cancelled != (run["status"] == "cancelled") {
            self.fault(format!("{name} was cancelled: {}, and is: {run}", entry.cancelled));
        }
        match run["status"].as_str().unwrap() {
            "completed" => {
                findings.completed += 1;
                let text = run["task_result"]["text"].as_str().unwrap_or_default();
                if entry.job.plan != StormPlan::Complete || !text.contains(&format!("done {name}")) {
                    self.fault(format!("{name} has the wrong result: {run}"));
                }
            }
            "failed" => {
                let code = run["task_result"]["code"].as_str().unwrap_or_default();
                if code == "task_failed" && entry.job.plan != StormPlan::Fail {
                    self.fault(format!("{name} failed by itself: {run}"));
                }
                *findings.failed.entry(code.to_owned()).or_default() += 1;
            }
            _ => findings.cancelled += 1,
        }
    }

    /// The event stream of a run is a path through its states, without gaps, to exactly one end.
    fn weigh_events(&self, run: &Value, findings: &mut StormFindings) {
        let id = run["task_run_id"].as_str().unwrap();
        let mut events = Vec::new();
        loop {
            let after = events.len();
            let path = format!("/api/v1/task-runs/{id}/events?after={after}&limit=200");
            let page = self.owner.get(&path).expect("the weather is good");
            let page = page["events"].as_array().unwrap();
            if page.is_empty() {
                break;
            }
            events.extend(page.iter().cloned());
        }
        let fault = |what: &str| self.fault(format!("{what} in the events of {id}: {events:#?}\n{run}"));
        let seqs: Vec<_> = events.iter().map(|event| event["seq"].as_i64().unwrap()).collect();
        if !seqs.iter().copied().eq(1..=run["last_seq"].as_i64().unwrap()) {
            return fault("a gap");
        }
        let (mut state, mut epoch, mut attempt) = ("new", 0, 0);
        for event in &events {
            state = match (state, event["type"].as_str().unwrap()) {
                ("new", "task.created") => "pending",
                ("pending", "task.claimed") => {
                    (epoch, attempt) = (epoch + 1, attempt + 1);
                    if event["data"]["epoch"] != epoch || event["data"]["attempt"] != attempt {
                        fault("a claim out of order");
                    }
                    "running"
                }
                ("running", "task.requeued") => {
                    let reason = event["data"]["reason"].as_str().unwrap_or_default();
                    attempt -= i64::from(matches!(reason, "released" | "undelivered"));
                    *findings.requeued.entry(reason.to_owned()).or_default() += 1;
                    "pending"
                }
                ("running", "task.progress" | "task.chunk" | "task.log") => "running",
                ("running", "task.completed") => "completed",
                ("pending" | "running", "task.failed") => "failed",
                ("pending" | "running", "task.cancelled") => "cancelled",
                _ => return fault("an impossible step"),
            };
        }
        if run["status"] != state || run["epoch"] != epoch || run["attempt"] != attempt {
            fault("another end than the run's own");
        }
    }

    /// The devices' records by run and epoch.
    fn ledgers(&self) -> BTreeMap<String, BTreeMap<i64, LedgerClaim>> {
        let mut all: BTreeMap<String, BTreeMap<i64, LedgerClaim>> = BTreeMap::new();
        for device in self.devices {
            let text = fs::read_to_string(device.home.ledger_file(&device.agent)).unwrap();
            // A line may be incomplete if its writer was killed.
            for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
                let (Some(run), Some(epoch)) = (line["task_run_id"].as_str(), line["epoch"].as_i64()) else { continue };
                let told = all.entry(run.to_owned()).or_default().entry(epoch).or_default();
                match line["event"].as_str().unwrap_or_default() {
                    "task_started" => told.started = true,
                    "task_completed" | "task_failed" => told.outcome = Some(line),
                    "task_reported" => told.reported = true,
                    _ => {}
                }
            }
        }
        all
    }

    /// A result that a device got a 200 for is the run's result. Returns the number of results.
    fn weigh_ledger(&self, entry: &StormEntry, run: &Value, claims: Option<&BTreeMap<i64, LedgerClaim>>) -> usize {
        let reported: Vec<_> = claims
            .into_iter()
            .flatten()
            .filter(|(_, told)| told.reported)
            .map(|(epoch, told)| (*epoch, told))
            .collect();
        if reported.len() > 1 {
            self.fault(format!("{} was reported by several claims: {claims:?}", entry.job.name));
        }
        for (epoch, told) in &reported {
            let outcome = told.outcome.as_ref().expect("the outcome is in the ledger before it is reported");
            let status = if outcome["event"] == "task_completed" { "completed" } else { "failed" };
            let member = if status == "completed" { "text" } else { "error" };
            let same = run["task_result"][member] == outcome["output"][member];
            if run["status"] != status || run["epoch"] != *epoch || !same {
                self.fault(format!("the hub took {outcome} and holds {run}"));
            }
        }
        if run["status"] == "completed" && self.devices.iter().any(|device| run["agent_id"] == device.agent.as_str()) {
            let told = claims.and_then(|claims| claims.get(&run["epoch"].as_i64().unwrap()));
            if told.and_then(|told| told.outcome.as_ref()).is_none_or(|outcome| outcome["event"] != "task_completed") {
                self.fault(format!("the hub holds a result that no ledger has: {run} {claims:?}"));
            }
        }
        reported.len()
    }

    /// How often each run started and finished on a device, as recorded by its own script.
    fn traces(&self) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
        let (mut begun, mut ended) = (BTreeMap::new(), BTreeMap::new());
        for line in fs::read_to_string(self.traces).unwrap_or_default().lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [step, _, run] = words[..] else {
                self.fault(format!("a strange trace: {line:?}"));
                continue;
            };
            let count = if step == "begin" { &mut begun } else { &mut ended };
            *count.entry(run.to_owned()).or_default() += 1;
        }
        (begun, ended)
    }

    /// Agents aren't idempotent: no claim executes twice, and no run more often than its creator allows.
    fn weigh_executions(
        &self,
        entry: &StormEntry,
        run: &Value,
        claims: Option<&BTreeMap<i64, LedgerClaim>>,
        begun: &BTreeMap<String, usize>,
        ended: &BTreeMap<String, usize>,
    ) {
        let id = &entry.run;
        let begun = begun.get(id).copied().unwrap_or(0);
        let started = claims.map_or(0, |claims| claims.values().filter(|told| told.started).count());
        let allowed = usize::try_from(entry.job.max_attempts).unwrap();
        if begun > started || started > allowed {
            self.fault(format!("{id} was executed {begun} times, started {started} times, {allowed} allowed: {run}"));
        }
        let on_device = claims.is_some();
        if run["status"] == "completed" && on_device && ended.get(id).is_none() {
            self.fault(format!("{id} has a result and was never executed to its end: {run}"));
        }
    }
}
